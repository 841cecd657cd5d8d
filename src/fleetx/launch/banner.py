"""What fleetrun prints before the workers start: its flags and the first worker's environment."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

_KEY, _GAP, _VALUE = 40, 2, 45
_INDENT = " " * 4


def configuration(flags: Mapping[str, Any]) -> str:
    """Return the block of all flags, sorted by name."""
    rows = [f"{name}: {value}" for name, value in sorted(flags.items())]
    title = "-----------  Configuration Arguments -----------"
    return "\n".join([title, *rows, "-" * len(title)])


def environment_table(environment: Mapping[str, str], names: Iterable[str]) -> str:
    """Return the box with the variables `names`, as Fleet's documents show it."""
    edge = "=" * (_KEY + _GAP + _VALUE)
    lines = [f"+{edge}+", _row("Distributed Envs", "Value"), f"+{edge.replace('=', '-')}+"]
    lines += [_row(name, environment[name]) for name in names if name in environment]
    lines.append(f"+{edge}+")
    return "\n".join(_INDENT + line for line in lines)


def endpoints_file(workers: Iterable[str], servers: Sequence[str]) -> str:
    """Return the text of endpoints.log."""
    lines = ["PADDLE_TRAINER_ENDPOINTS: ", *workers]
    if servers:
        lines += ["PADDLE_PSERVERS_IP_PORT_LIST: ", *servers]
    return "\n".join(lines) + "\n"


def _row(key: str, value: str) -> str:
    if len(value) >= _VALUE:  # the end tells endpoints apart, the beginning does not
        value = "... " + value[-(_VALUE - 4) :]
    return f"|{key:>{_KEY}}{' ' * _GAP}{value:^{_VALUE}}|"
