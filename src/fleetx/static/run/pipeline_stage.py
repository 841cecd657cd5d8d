"""A program's place in a pipeline, and the schedule of its micro-batches.

Every op of such a program belongs to a phase: some begin a batch, forward and backward run for each
micro-batch, and the updates follow once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from fleetx.comm.point_to_point import Peers
from fleetx.static.graph.operator import OpRole

_TRAINS = OpRole.Backward | OpRole.Optimize
MERGED = "@GRAD@MERGED"
"""The suffix of the variables that accumulate the gradients of micro-batches."""


@dataclass(frozen=True, kw_only=True)
class PipelineStage:
    """The place of a program in a pipeline."""

    index: int
    stages: int
    micro_batches: int
    """Micro-batches per run."""
    micro_batch_size: int | None
    """Samples per micro-batch; None for any number."""
    mode: str
    """'1F1B' or 'F-then-B'."""
    peers: Peers
    """The other stages."""
    elsewhere: frozenset[str]
    """Variables that only other stages have."""
    compare: Callable[[Mapping[str, Tensor]], None]
    """Raises ValueError if stages are fed different batches."""

    def order(self) -> list[tuple[bool, int]]:
        """Return the schedule of the stage: pairs (is forward, micro-batch).

        With 1F1B a stage begins with as many forward passes as stages follow it, and then
        alternates, so that it holds the activations of no more micro-batches than that.
        """
        count = self.micro_batches
        ahead = count if self.mode == "F-then-B" else min(count, self.stages - 1 - self.index)
        found = [(True, i) for i in range(ahead)]
        for i in range(count - ahead):
            found += [(True, ahead + i), (False, i)]
        return found + [(False, i) for i in range(count - ahead, count)]


def batches_per_run(program: Any) -> int:
    """Return the number of micro-batches per run; 0 if the program is not pipelined."""
    stage = program.binding.pipeline
    if stage is None or not any(op.op_role & _TRAINS for op in program.global_block().ops):
        return 0
    return int(stage.micro_batches)


def names_elsewhere(program: Any) -> frozenset[str]:
    """Return the variables that only other stages have."""
    stage = program.binding.pipeline
    return frozenset() if stage is None else stage.elsewhere
