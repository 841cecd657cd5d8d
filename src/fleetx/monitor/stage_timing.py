"""Timed stages: a proxy that replaces a stage and reports how long its methods took.

It is placed in a step only while monitoring is on; all attributes other than the named methods are
those of the stage.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from fleetx.monitor.recorder import now

Told = Callable[[float, float, Any], None]
"""Callback for the start, the end and the result of a call."""


class Listened:
    """A proxy of a stage that reports its calls."""

    def __init__(self, stage: Any, listeners: Mapping[str, Told]) -> None:
        # Stages use all sorts of attribute names; this one must not collide with any of them.
        object.__setattr__(self, "_listened", stage)
        for name, told in listeners.items():
            object.__setattr__(self, name, _timed(getattr(stage, name), told))

    def __getattr__(self, name: str) -> Any:
        if name == "_listened":
            raise AttributeError(name)
        return getattr(self._listened, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._listened, name, value)


def _timed(method: Callable[..., Any], told: Told) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        began = now()
        result = method(*args, **kwargs)
        told(began, now(), result)
        return result

    return call
