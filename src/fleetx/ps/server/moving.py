"""A server's part in moving all tables to other servers: when all workers have stopped.

Worker 0 announces a move. In synchronous training the announcement names the step before which all
workers stop; each knows it in time, because worker 0 commits no earlier step before all servers
have it. In the other modes each worker says when it has stopped. Both are logged like any change,
so a restarted server or worker finds the move where it was.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from fleetx.ps.wire import messages as wire
from fleetx.ps.wire.assembly import Message
from fleetx.ps.wire.messages import NO_STEP, Problem, WireError
from fleetx.runtime.layout_folder import is_handover

# Worker 0 announces a move during a step, for the end of the next one.
_AHEAD = 2
_MOST_MOVES = 1 << 31


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
        """Return what `to_json` described; None for none; raise ValueError for anything else."""
        if value is None:
            return None
        match value:
            case {"generation": int(generation), "step": int(step), "ready": [*ready]} if len(
                value
            ) == 3 and all(type(worker) is int for worker in ready):
                return cls(generation, step, set(ready))
        raise ValueError(f"{value!r:.200} is no move of tables")

    def waits_for(self, active: set[int]) -> set[int]:
        """Return the workers that have not stopped."""
        return active - self.ready if self.step == NO_STEP else set()

    def is_still(self, active: set[int], version: int) -> bool:
        """Return whether nothing changes any more: all workers have stopped."""
        if self.step == NO_STEP:
            return active <= self.ready
        return version >= self.step


def check_move(message: Message, current: Move | None, version: int) -> int:
    """Return the generation that a worker moves to; reject invalid announcements."""
    header = message.header
    generation = wire.read_json(message.tensors).get("generation")
    if type(generation) is not int or not 1 <= generation <= _MOST_MOVES:  # true is no number
        raise WireError(Problem.BAD_REQUEST, f"tables cannot move to layout {generation!r:.100}")
    if current is None and header.worker != 0:
        raise WireError(Problem.BAD_REQUEST, "worker 0 announces that tables move")
    if current is not None and generation != current.generation:
        raise WireError(
            Problem.BAD_REQUEST,
            f"tables move to layout {current.generation} already, not to {generation}",
        )
    is_past = current is None and NO_STEP < header.step < version
    if is_past or header.step > version + _AHEAD + 1:
        raise WireError(
            Problem.BAD_REQUEST, f"step {header.step} is too far from {version} for a move"
        )
    return generation


def handover_folder(message: Message, move: Move | None) -> Path:
    """Return the folder of the handover that worker 0 requests; reject any other path."""
    folder = wire.read_json(message.tensors).get("path")
    if message.header.worker != 0 or not isinstance(folder, str):
        raise WireError(Problem.BAD_REQUEST, "worker 0 names the folder to hand over in")
    if move is None or not is_handover(Path(folder), move.generation):
        raise WireError(Problem.BAD_REQUEST, f"{folder!r:.200} is not the folder of the move")
    return Path(folder)


def move_after(message: Message, current: Move | None) -> Move:
    """Return the move as it is after a worker's message."""
    header = message.header
    generation = int(wire.read_json(message.tensors)["generation"])
    move = current or Move(generation, max(header.step, NO_STEP))
    if move.step == NO_STEP:
        move.ready.add(header.worker)
    return move
