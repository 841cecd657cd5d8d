"""Callbacks before every run of a program by an Executor, while a context is open."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from fleetx.static.graph.program import Program
from fleetx.static.run.scope import Scope

Watcher = Callable[[Any, Program, Scope], None]
_watchers: list[Watcher] = []


@contextlib.contextmanager
def watching(watcher: Watcher) -> Iterator[None]:
    """Call `watcher(executor, program, scope)` before each run inside."""
    _watchers.append(watcher)
    try:
        yield
    finally:
        _watchers.remove(watcher)


def before_run(executor: Any, program: Program, scope: Scope) -> None:
    """Call all watchers."""
    for watcher in _watchers:
        watcher(executor, program, scope)
