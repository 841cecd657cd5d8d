"""A technique outside FleetX: gradients are sent as 8-bit integers.

`fleet.register(EightBits)` is all it takes: `strategy.eight_bits`, `strategy.eight_bits_configs`
with their checks, `fleet.explain()` and both front ends support it. An installed package registers
by an entry point instead:

    [project.entry-points."fleetx.techniques"]
    eight_bits = "my_package.eight_bits:EightBits"
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from fleetx.step.compression import CompressedSync, ErrorFeedback, State
from fleetx.step.program_step import ProgramStep
from fleetx.step.settings import setting
from fleetx.step.stages import Stage
from fleetx.step.technique import Order, Row, Sizes, Technique
from fleetx.step.train_step import TrainStep

_SCALE_BYTES = 4


@dataclass(frozen=True, kw_only=True)
class Config:
    """The settings of the quantization."""

    levels: int = setting(127, least=1)
    """Steps between zero and the largest magnitude; 127 uses all bits."""


class Quantize:
    """A tensor's entries as integers, preceded by the size of one quantization step."""

    def __init__(self, levels: int) -> None:
        self._levels = min(levels, 127)

    def state_names(self, name: str) -> list[str]:
        """Return no names: nothing is kept."""
        return []

    def compress(self, name: str, tensor: Tensor, state: State) -> Tensor:
        """Return the size of a step and the entries in steps, as bytes."""
        step = (tensor.abs().max() / self._levels).float().clamp(min=1e-30).reshape(1)
        entries = (tensor.reshape(-1) / step).round().to(torch.int8)
        return torch.cat([step.view(torch.uint8), entries.view(torch.uint8)])

    def restore(self, message: Tensor, like: Tensor) -> Tensor:
        """Return the entries times the size of a step."""
        head, entries = message.split([_SCALE_BYTES, like.numel()])
        step = head.clone().view(torch.float32).to(like.dtype)
        return entries.view(torch.int8).to(like.dtype).mul_(step).view(like.shape)

    def message_bytes(self, elements: int) -> int:
        """Return a byte per entry and the size of a step."""
        return _SCALE_BYTES + elements


class EightBits(Technique[Config]):
    """Send one byte per gradient entry."""

    name = "eight_bits"
    order = Order.EXCHANGE
    replaces = frozenset({Stage.GRAD_SYNC})
    needs_workers = True
    differs_by_worker = True

    def _sync(self) -> CompressedSync:
        return CompressedSync(ErrorFeedback(Quantize(self.config.levels)))

    def change(self, step: TrainStep | ProgramStep) -> None:
        """Exchange bytes after backward."""
        step.grad_sync = self._sync()

    def rows(self, sizes: Sizes) -> list[Row]:
        """Return what a step sends, and the memory of the residuals."""
        return [
            Row(
                stage=Stage.GRAD_SYNC,
                technique=self.name,
                settings="one byte per entry, error feedback",
                bytes_sent=self._sync().bytes_sent(sizes.elements, self.job.workers),
                memory=sizes.parameter_bytes,
            )
        ]
