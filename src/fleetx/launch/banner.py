"""What fleetrun prints before the workers start: its flags and the first worker's environment."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

# Column widths of Fleet's documents; names have a minimum width, values shrink on narrow terminals.
_KEY, _GAP, _VALUE = 40, 2, 45
_SHORT_KEY, _SHORT_VALUE = 30, 20
_INDENT = " " * 4


def configuration(flags: Mapping[str, Any]) -> str:
    """Return the configuration block: all flags, sorted by name."""
    rows = [f"{name}: {value}" for name, value in sorted(flags.items())]
    title = "-----------  Configuration Arguments -----------"
    return "\n".join([title, *rows, "-" * len(title)])


def environment_table(
    environment: Mapping[str, str], names: Iterable[str], width: int | None = None
) -> str:
    """Return a table of the variables `names`, as Fleet's documents show it.

    On a terminal narrower than the table, the table takes the terminal's `width`.
    """
    edges = len(_INDENT) + 2 + _GAP
    key, value = _KEY, _VALUE
    if width is not None and width < edges + key + value:
        key = _SHORT_KEY
        value = min(_VALUE, max(_SHORT_VALUE, width - edges - key))
    edge = "=" * (key + _GAP + value)
    rows = [("Distributed Envs", "Value")]
    rows += [(name, environment[name]) for name in names if name in environment]
    head, *lines = (_row(name, text, key, value) for name, text in rows)
    lines = [f"+{edge}+", head, f"+{edge.replace('=', '-')}+", *lines, f"+{edge}+"]
    return "\n".join(_INDENT + line for line in lines)


def endpoints_file(workers: Iterable[str], servers: Sequence[str]) -> str:
    """Return the text of endpoints.log."""
    lines = ["PADDLE_TRAINER_ENDPOINTS: ", *workers]
    if servers:
        lines += ["PADDLE_PSERVERS_IP_PORT_LIST: ", *servers]
    return "\n".join(lines) + "\n"


def _row(name: str, text: str, key: int, value: int) -> str:
    if len(text) >= value:  # endpoints differ at the end, not at the beginning
        text = "... " + text[-(value - 4) :]
    return f"|{name:>{key}}{' ' * _GAP}{text:^{value}}|"
