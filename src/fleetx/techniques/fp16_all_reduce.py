"""fp16_allreduce: gradients are sent in half precision (float16 or bfloat16) and used in float32.

It applies to every exchange of gradients, whichever technique does it. With LocalSGD, differences
of parameters are sent in half precision.
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
    """Gradients are all-reduced in half precision."""

    name = "fp16_allreduce"
    order = Order.MESSAGE
    since, numbers = "2.0", (25, 1007)
    wraps = frozenset({Stage.GRAD_SYNC})
    needs_workers = True
    keeps_mathematics = True

    def change_messages(self, settings: AllReduceSettings) -> AllReduceSettings:
        """Set the dtype of messages to that of the strategy."""
        return replace(settings, dtype=getattr(torch, self.job.strategy.fp16_allreduce_dtype))

    def share_of_bytes(self) -> float:
        """Return one half."""
        return 0.5

    def rows(self, sizes: Sizes) -> list[Row]:
        """Return the row with the saving of the exchange."""
        dtype = self.job.strategy.fp16_allreduce_dtype
        return [Row(stage=Stage.GRAD_SYNC, technique=self.name, settings=f"as {dtype}")]
