"""The training steps and programs of this process, which monitoring attaches to.

The session registers its steps and programs, before or after measuring starts. They are held
by weak references, and nothing is attached to them until monitoring is on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from fleetx.monitor.recorder import Recorder


class Target(Protocol):
    """A step or program that trains."""

    def attach(self, recorder: Recorder) -> list[Callable[[], None]]:
        """Attach the hooks of a recorder; return the functions that remove them."""


class Targets:
    """All targets of this process, and the recorder attached to them, if any."""

    def __init__(self) -> None:
        self._known: dict[int, Target] = {}
        self._removes: dict[int, list[Callable[[], None]]] = {}
        self._recorder: Recorder | None = None

    @property
    def are_known(self) -> bool:
        """Whether any target is registered."""
        return bool(self._known)

    def add(self, key: int, target: Target) -> None:
        """Register a target; one with the same key is replaced."""
        self._detach(key)
        self._known[key] = target
        if self._recorder is not None:
            self._removes[key] = target.attach(self._recorder)

    def listen(self, recorder: Recorder | None) -> None:
        """Attach a recorder to all targets, present and future; None detaches it."""
        for key in list(self._removes):
            self._detach(key)
        self._recorder = recorder
        if recorder is not None:
            self._removes = {key: t.attach(recorder) for key, t in self._known.items()}

    def _detach(self, key: int) -> None:
        for remove in self._removes.pop(key, []):
            remove()

    def forget(self) -> None:
        """Forget all targets: a new session starts."""
        for key in list(self._removes):
            self._detach(key)
        self._known.clear()


targets = Targets()
