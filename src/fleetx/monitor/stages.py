"""Listening to stages: an object in the place of a stage that tells how long its methods took.

It is put into a step only while somebody measures; everything but the named methods is the stage's
own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from fleetx.monitor.recorder import now

Told = Callable[[float, float, Any], None]
"""Callback for the beginning, the end and the result of a call."""


class Listened:
    """A stage whose calls are told of."""

    def __init__(self, stage: Any, listeners: Mapping[str, Told]) -> None:
        # Stages have all sorts of names themselves: what is kept here has one that none has.
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
