"""Name scopes of ops: a path that `name_scope` gives to the ops appended inside it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator


class _NameScope:
    """A name scope of ops; a repeated name gets a number."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._used: dict[str, int] = {}

    def child(self, prefix: str) -> _NameScope:
        number = self._used.get(prefix, 0)
        self._used[prefix] = number + 1
        return _NameScope(f"{self.path}{prefix}{f'_{number}' if number else ''}/")


_name_scope = _NameScope("/")


def current_path() -> str:
    """Return the path of the name scope that ops are appended in, "/" outside of all."""
    return _name_scope.path


@contextlib.contextmanager
def name_scope(prefix: str | None = None) -> Iterator[None]:
    """Mark ops appended inside the block with a scope name, for reading and debugging."""
    if not prefix:
        raise ValueError("name_scope needs a prefix that is not empty.")
    if not isinstance(prefix, str):
        raise TypeError(f"the prefix of name_scope must be a str, not {type(prefix).__name__}.")
    global _name_scope
    outer = _name_scope
    _name_scope = outer.child(prefix)
    try:
        yield
    finally:
        _name_scope = outer
