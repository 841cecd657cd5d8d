"""Listening to stages: an object in the place of a stage that tells how long its methods took.

It is put into a step only while somebody measures; everything but the named methods is the stage's
own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from fleetx.monitor.recorder import now

Told = Callable[[float, float, Any], None]
"""Is told when a call began and ended, and what it returned."""


class Listened:
    """A stage whose calls are told of."""

    def __init__(self, inner: Any, listeners: Mapping[str, Told]) -> None:
        self.inner = inner
        for name, told in listeners.items():
            setattr(self, name, _timed(getattr(inner, name), told))

    def __getattr__(self, name: str) -> Any:
        if name == "inner":
            raise AttributeError(name)
        return getattr(self.inner, name)


def _timed(method: Callable[..., Any], told: Told) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        began = now()
        result = method(*args, **kwargs)
        told(began, now(), result)
        return result

    return call
