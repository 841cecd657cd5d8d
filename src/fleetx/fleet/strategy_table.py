"""A DistributedStrategy as tables: the overview that `print` shows, and all settings for docs."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

from fleetx.fleet.strategy import DistributedStrategy, settings
from fleetx.fleet.technique_switches import ConfigsField
from fleetx.step import registry
from fleetx.step.settings import Effect, Field, with_meanings

_WIDTH = 78  # between the edges: a line fits into a terminal of 80 columns


def overview(strategy: DistributedStrategy) -> str:
    """Return the boxed table: what is switched on with its settings, then flags and the rest."""
    configs = strategy._current_configs()
    flags = {n: row for n, row in settings(type(strategy)).items() if isinstance(row, Field)}
    lines = [_rule("="), _row(""), _row("DistributedStrategy Overview"), _row("")]
    switches = [name for name in flags if f"{name}_configs" in configs]
    for name in switches:
        if strategy._values[name]:
            group = f"{name}_configs"
            lines += _block(f"{name}=True <-> {group}", configs[group])
    rest = {name: strategy._values[name] for name in flags if name not in switches}
    lines += _block("Environment Flags, Communication Flags", rest)
    lines += _block("Build Strategy", configs["build_strategy"])
    lines += _block("Execution Strategy", configs["execution_strategy"])
    return "\n".join([*lines, _rule("="), ""])


def _rule(character: str) -> str:
    return f"+{character * _WIDTH}+"


def _row(text: str) -> str:
    return f"|{text:^{_WIDTH}}|"


def _block(title: str, values: dict[str, Any]) -> list[str]:
    lines = [_rule("="), _row(title), _rule("-")]
    for name, value in values.items():
        items = value if isinstance(value, list) else [value]
        for i, item in enumerate(items or [""]):
            half = _WIDTH // 2
            lines.append(f"|{name if i == 0 else '':>{half}}{item!s:^{half}}|")
    return lines


_EFFECTS = {Effect.USED: "", Effect.NONE: "no effect here", Effect.REFUSED: "refused"}
_HEAD = """# DistributedStrategy

Every setting, with Paddle 2.x's names and defaults. *Since* is the Paddle version that brought it.
"no effect here" marks settings of kernels and passes that do not exist here: they are accepted and
kept. "refused" marks techniques that do not exist here: switching one on is an error before
training starts.

    strategy = fleet.DistributedStrategy()
    strategy.localsgd = True
    strategy.localsgd_configs = {"k_steps": 4}
    print(strategy)
    strategy.save_to_prototxt("strategy.prototxt")

This page is written by `python -m fleetx.fleet.strategy_table`.
"""


def reference() -> str:
    """Return all settings as a Markdown page: name, type, default, since, meaning, effect."""
    parts = [_HEAD, "## Switches", "", *_markdown(_flags())]
    for name, row in settings().items():
        if isinstance(row, ConfigsField):
            parts += [
                "",
                f"## {name}",
                "",
                f"Settings of `{name.removesuffix('_configs')}`.",
                "",
                *_markdown(row.fields if row.config is None else _described(row)),
            ]
    return "\n".join(parts) + "\n"


def _described(group: ConfigsField) -> list[Field[Any]]:
    assert group.config is not None
    rows = with_meanings(group.fields, group.config)
    return [replace(row, meaning=" ".join(row.meaning.split())) for row in rows]


def stub() -> str:
    """Return the stub of `technique_switches` for type checkers."""
    lines = [
        "# Written by `python -m fleetx.fleet.strategy_table --stub`.",
        "from collections.abc import Mapping",
        "from typing import Any, overload",
        "",
        "from fleetx.step.settings import Configs, Field, Rows",
        "",
        "class ConfigsField:",
        "    number: int",
        "    fields: Rows",
        "    meaning: str",
        "    name: str",
        "    config: type | None",
        "    def __init__(",
        "        self,",
        "        number: int,",
        "        fields: Rows,",
        "        meaning: str,",
        "        config: type | None = None,",
        '        name: str = "",',
        "    ) -> None: ...",
        "    @overload",
        "    def __get__(self, holder: None, owner: type) -> ConfigsField: ...",
        "    @overload",
        "    def __get__(self, holder: TechniqueSwitches, owner: type) -> Configs: ...",
        "    def __set__(self, holder: TechniqueSwitches, values: Mapping[str, Any]) -> None: ...",
        "",
        "class TechniqueSwitches:",
        "    _values: dict[str, Any]",
        "    _configs: dict[str, Configs]",
    ]
    for technique in registry.known():
        lines.append(f"    {technique.name}: Field[bool]")
        if hasattr(DistributedStrategy, f"{technique.name}_configs"):
            lines.append(f"    {technique.name}_configs: ConfigsField")
    return "\n".join(lines) + "\n"


def _flags() -> list[Field[Any]]:
    return [row for row in settings().values() if isinstance(row, Field)]


def _markdown(fields: list[Field[Any]] | tuple[Field[Any], ...]) -> list[str]:
    head = ["| name | type | default | since | meaning | |", "|---|---|---|---|---|---|"]
    rows = [
        f"| `{f.name}` | {f.kind} | {f.default!r} | {f.since} | {f.meaning} "
        f"| {_EFFECTS[f.effect]} |"
        for f in fields
    ]
    return head + rows


if __name__ == "__main__":
    print(stub() if sys.argv[1:] == ["--stub"] else reference(), end="")
