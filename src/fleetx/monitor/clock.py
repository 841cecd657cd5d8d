"""A common time axis for all workers: the offset of each worker's clock from that of worker 0.

Worker 0 and each other worker exchange a few messages. The fastest round trip is the most
accurate: worker 0 answered during it, so its midpoint is wrong by at most half of its duration.
Workers without a process group (parameter servers) use the wall clocks of their machines.
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from typing import Any

import torch
import torch.distributed as dist

from fleetx.comm import world
from fleetx.comm.device import device_of_messages

_ROUNDS = 12


@dataclass(frozen=True)
class ClockOffset:
    """The offset from this worker's `perf_counter` to that of worker 0 (nanoseconds)."""

    offset: int
    """The value to add."""
    error: int | None
    """The maximum error of the offset; None if unknown."""
    way: str
    """'ping-pong', 'own clock' (worker 0) or 'wall clock'."""

    def facts(self) -> dict[str, Any]:
        """Return the offset as plain values."""
        return asdict(self)


def wall_clock_offset() -> ClockOffset:
    """Return the offset to the wall clock, as accurate as the machine's clock."""
    return ClockOffset(time.time_ns() - time.perf_counter_ns(), None, "wall clock")


def align() -> ClockOffset:
    """Compare clocks with worker 0, if there are other workers; a collective call."""
    if not world.is_connected():
        return ClockOffset(0, 0, "own clock")
    world.meet()
    if world.rank() == 0:
        for other in range(1, world.world_size()):
            _answer(other)
        return ClockOffset(0, 0, "own clock")
    return _ask()


def _message() -> torch.Tensor:
    message = torch.zeros(1, dtype=torch.int64)
    return message.to(device_of_messages(message))


def _answer(other: int) -> None:
    message = _message()
    for _ in range(_ROUNDS):
        dist.recv(message, src=other)
        message.fill_(time.perf_counter_ns())
        dist.send(message, dst=other)


def _ask() -> ClockOffset:
    message = _message()
    best: ClockOffset | None = None
    for _ in range(_ROUNDS):
        began = time.perf_counter_ns()
        dist.send(message, dst=0)
        dist.recv(message, src=0)
        theirs = int(message.item())
        ended = time.perf_counter_ns()
        error = (ended - began + 1) // 2
        if best is None or best.error is None or error < best.error:
            best = ClockOffset(theirs - (began + ended) // 2, error, "ping-pong")
    assert best is not None
    return best
