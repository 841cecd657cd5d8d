"""What this process trains, so that measuring can begin before or after it is known.

The session names its steps and programs here. They are held weakly, and nothing is attached to
them until somebody measures.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from fleetx.monitor.recorder import Recorder


class Target(Protocol):
    """Something that trains."""

    def attach(self, recorder: Recorder) -> list[Callable[[], None]]:
        """Begin to tell a recorder; return what ends it."""


class Targets:
    """All that trains in this process, and the recorder that listens to it, if any."""

    def __init__(self) -> None:
        self._known: dict[int, Target] = {}
        self._removes: dict[int, list[Callable[[], None]]] = {}
        self._recorder: Recorder | None = None

    @property
    def are_known(self) -> bool:
        """Whether anything trains yet."""
        return bool(self._known)

    def add(self, key: int, target: Target) -> None:
        """Name a target; one of the same key is replaced."""
        self._detach(key)
        self._known[key] = target
        if self._recorder is not None:
            self._removes[key] = target.attach(self._recorder)

    def listen(self, recorder: Recorder | None) -> None:
        """Let a recorder listen to all targets from now on; None: nobody any more."""
        for key in list(self._removes):
            self._detach(key)
        self._recorder = recorder
        if recorder is not None:
            self._removes = {key: t.attach(recorder) for key, t in self._known.items()}

    def _detach(self, key: int) -> None:
        for remove in self._removes.pop(key, []):
            remove()

    def forget(self) -> None:
        """Forget what trained so far: a session begins anew."""
        for key in list(self._removes):
            self._detach(key)
        self._known.clear()


targets = Targets()
