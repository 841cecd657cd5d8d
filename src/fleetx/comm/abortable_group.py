"""A Gloo group whose exchanges can be abandoned.

Shutting down the connections of a group fails its exchanges, but not all: Gloo does not notice that
a message it has queued will never be sent, and waits for its timeout. So a waiting worker polls
whether the group is broken, and then abandons the exchange. An abandoned group cannot be destroyed,
since that would wait for its threads; it is kept until the process ends.
"""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from fleetx import torch_private

NAME = "abortable"

_SPIN = 0.0002
_LONGEST_PAUSE = 0.002
_GRACE = 0.5
"""Seconds in which an exchange of a broken group usually fails by itself."""

_is_broken: Callable[[], bool] = bool
"""The check that new groups poll."""


class AbortableGroup(dist.ProcessGroup):
    """Gloo, with collectives that end when the group is broken; a call returns when it is done."""

    def __init__(self, gloo: Any, rank: int, size: int) -> None:
        super().__init__(rank, size)  # type: ignore[call-arg]
        self._is_broken = _is_broken
        self.gloo = gloo
        torch_private.use_backend(self, torch.device("cpu"), gloo)

    def getBackendName(self) -> str:
        """Return the name by which the backend is registered."""
        return NAME

    def wait(self, work: dist.Work) -> dist.Work:
        """Wait for a collective; raise RuntimeError if it fails or is abandoned."""
        began = time.monotonic()
        broken_since: float | None = None
        while not work.is_completed():
            now = time.monotonic()
            if now - began < _SPIN:
                os.sched_yield()
                continue
            if broken_since is None and self._is_broken():
                broken_since = now
            if broken_since is not None and now - broken_since > _GRACE:
                self._keep_for_ever()
                raise RuntimeError("a worker was lost, and the exchange was abandoned")
            time.sleep(min((now - began) / 10, _LONGEST_PAUSE))
        work.wait()
        return work

    def _keep_for_ever(self) -> None:
        for each in (self, self.gloo):
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(each))


def _waiting(name: str) -> Callable[..., dist.Work]:
    def call(self: AbortableGroup, *args: Any, **kwargs: Any) -> dist.Work:
        return self.wait(getattr(self.gloo, name)(*args, **kwargs))

    call.__name__ = name
    call.__doc__ = f"Run {name} and wait for it."
    return torch_private.not_compiled(call)


for _name in (
    "allreduce",
    "allreduce_coalesced",
    "broadcast",
    "allgather",
    "_allgather_base",
    "all_gather_single",
    "gather",
    "reduce",
    "reduce_scatter",
    "scatter",
    "barrier",
):
    if hasattr(dist.ProcessGroupGloo, _name):
        setattr(AbortableGroup, _name, _waiting(_name))


def _create(store: dist.Store, rank: int, size: int, timeout: timedelta) -> AbortableGroup:
    return AbortableGroup(dist.ProcessGroupGloo(store, rank, size, timeout), rank, size)


def register(is_broken: Callable[[], bool]) -> None:
    """Register the backend with torch.distributed, and the check that makes its groups give up."""
    global _is_broken
    _is_broken = is_broken
    if NAME not in dist.Backend.backend_list:
        dist.Backend.register_backend(NAME, _create, devices=["cpu"])
