"""Which of the engine's layers a module of Paddle has."""

from __future__ import annotations

from typing import Any

_TOOLS = ("narrow", "only")


def only(names: dict[str, Any], listed: str) -> list[str]:
    """Remove all other public names from a module's globals; return the listed ones, sorted.

    A module imports all layers, for readers and type checkers, and keeps those that Paddle's module
    of this name has.
    """
    kept = listed.split()
    for name in [n for n in names if not n.startswith("_") and n not in (*kept, *_TOOLS)]:
        del names[name]
    unknown = [name for name in kept if name not in names]
    assert not unknown, f"{names['__name__']} lists names that do not exist: {unknown}"
    return sorted(kept)
