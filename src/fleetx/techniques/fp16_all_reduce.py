"""fp16_allreduce: gradients travel in half precision (float16 or bfloat16) and are used in full.

Messages of every exchange of gradients are converted, whichever technique does the exchange. With
LocalSGD, differences of parameters travel in half precision.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from fleetx.comm.gradient_all_reduce import AllReduceSettings
from fleetx.step.registry import register
from fleetx.step.stages import Stage
from fleetx.step.technique import NoSettings, Order, Row, Sizes, Technique


@register
class Fp16AllReduce(Technique[NoSettings]):
    """Gradients travel in half precision."""

    name = "fp16_allreduce"
    order = Order.MESSAGE
    since, numbers = "2.0", (25, 1007)
    wraps = frozenset({Stage.GRAD_SYNC})
    needs_workers = True
    keeps_mathematics = True

    def change_messages(self, settings: AllReduceSettings) -> AllReduceSettings:
        """Let messages be of the type that the strategy names."""
        return replace(settings, dtype=getattr(torch, self.job.strategy.fp16_allreduce_dtype))

    def share_of_bytes(self) -> float:
        """Return one half."""
        return 0.5

    def rows(self, sizes: Sizes) -> list[Row]:
        """Return the saving on what the exchange sends."""
        dtype = self.job.strategy.fp16_allreduce_dtype
        return [Row(stage=Stage.GRAD_SYNC, technique=self.name, settings=f"as {dtype}")]
