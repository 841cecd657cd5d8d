"""fp16_allreduce: gradients travel in half precision (float16 or bfloat16) and are used in full.

It changes how every exchange of gradients converts its messages, so nothing is left to do when the
step is composed: the settings of the all-reduce already say it.
"""

from __future__ import annotations

from fleetx.step.program_step import ProgramStep
from fleetx.step.stages import Stage
from fleetx.step.technique import Row, Sizes, Technique


class Fp16AllReduce(Technique):
    """Halves the bytes of an all-reduce."""

    name = "fp16_allreduce"
    wraps = frozenset({Stage.GRAD_SYNC})
    needs_workers = True

    def change_program(self, step: ProgramStep) -> None:
        """Leave the step: `Job.all_reduce` has the type."""

    def share_of_bytes(self) -> float:
        """Return one half."""
        return 0.5

    def rows(self, sizes: Sizes) -> list[Row]:
        """Return the saving on what the exchange sends."""
        dtype = str(self.job.all_reduce.dtype).removeprefix("torch.")
        return [Row(stage=Stage.GRAD_SYNC, technique=self.name, settings=f"as {dtype}")]
