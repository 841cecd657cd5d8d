"""A server's part in moving all tables to other servers: when its state is still, and what it is.

Worker 0 announces a move. In synchronous training the announcement names the step before which all
workers stop; each knows it in time, because worker 0 commits no earlier step before all servers
have it. In the other modes each worker says when it has stopped. Both are logged like any change,
so a restarted server or worker finds the move where it was.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from fleetx.ps.wire import messages as wire
from fleetx.ps.wire.assembly import Message
from fleetx.ps.wire.messages import NO_STEP, Problem, WireError

# Worker 0 announces a move during a step, for the end of the next one.
_AHEAD = 2


@dataclasses.dataclass
class Move:
    """An announced move."""

    generation: int
    step: int = NO_STEP
    """The step before which workers stop; NO_STEP outside of synchronous training."""
    ready: set[int] = dataclasses.field(default_factory=set)
    """The workers that have stopped, outside of synchronous training."""

    def to_json(self) -> dict[str, Any]:
        """Return the move as JSON values."""
        return {**dataclasses.asdict(self), "ready": sorted(self.ready)}

    @classmethod
    def from_json(cls, value: dict[str, Any] | None) -> Move | None:
        """Return what `to_json` described; None for none."""
        return None if value is None else cls(**{**value, "ready": set(value["ready"])})

    def waits_for(self, active: set[int]) -> set[int]:
        """Return the workers that have not stopped."""
        return active - self.ready if self.step == NO_STEP else set()

    def is_still(self, active: set[int], version: int) -> bool:
        """Return whether nothing changes any more: all workers have stopped."""
        if self.step == NO_STEP:
            return active <= self.ready
        return version >= self.step


def check_move(message: Message, current: Move | None, version: int) -> int:
    """Return the generation that a worker moves to; reject what cannot be."""
    header = message.header
    generation = wire.read_json(message.tensors).get("generation")
    if type(generation) is not int or generation < 1:  # true is no number
        raise WireError(Problem.BAD_REQUEST, f"tables cannot move to layout {generation!r}")
    if current is None and header.worker != 0:
        raise WireError(Problem.BAD_REQUEST, "worker 0 announces that tables move")
    if current is not None and generation != current.generation:
        raise WireError(
            Problem.BAD_REQUEST,
            f"tables move to layout {current.generation} already, not to {generation}",
        )
    if header.step > version + _AHEAD + 1:
        raise WireError(
            Problem.BAD_REQUEST, f"step {header.step} is too far from {version} for a move"
        )
    return generation


def move_after(message: Message, current: Move | None) -> Move:
    """Return the move as it is after a worker's message."""
    header = message.header
    generation = int(wire.read_json(message.tensors)["generation"])
    move = current or Move(generation, max(header.step, NO_STEP))
    if move.step == NO_STEP:
        move.ready.add(header.worker)
    return move
