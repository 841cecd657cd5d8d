"""What a program that is one stage of a pipeline knows about the others, and the order of its work.

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
"""The ending of the variables in which the gradients of micro-batches are added up."""


@dataclass(frozen=True, kw_only=True)
class PipelineStage:
    """The place of a program in a pipeline."""

    index: int
    stages: int
    micro_batches: int
    """Micro-batches per run."""
    micro_batch_size: int | None
    """Samples of each; None if any number will do."""
    mode: str
    """'1F1B' or 'F-then-B'."""
    peers: Peers
    """The other stages."""
    elsewhere: frozenset[str]
    """Variables that only other stages have."""
    compare: Callable[[Mapping[str, Tensor]], None]
    """Raises ValueError if stages are fed different batches."""

    def order(self) -> list[tuple[bool, int]]:
        """Return what the stage does with which micro-batch, one after another: (is forward,
        number).

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
    """Return how many micro-batches a run of a program takes; 0 if it does not train in a
    pipeline."""
    stage = program.binding.pipeline
    if stage is None or not any(op.op_role & _TRAINS for op in program.global_block().ops):
        return 0
    return int(stage.micro_batches)


def names_elsewhere(program: Any) -> frozenset[str]:
    """Return the variables that a program lacks because other stages have them."""
    stage = program.binding.pipeline
    return frozenset() if stage is None else stage.elsewhere
