"""signsgd: workers send one bit per gradient entry and keep the residual for the next step.

EF-SignSGD (https://arxiv.org/abs/1901.09847): a message holds the signs of a gradient and the mean
of its magnitudes; all workers average what the messages stand for.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

import torch
from torch import Tensor

from fleetx.step.compression import CompressedSync, Compressor, ErrorFeedback, State
from fleetx.step.program_step import ProgramStep
from fleetx.step.registry import register
from fleetx.step.stages import Stage
from fleetx.step.technique import Order, Row, Sizes, Technique
from fleetx.step.train_step import TrainStep

_SCALE_BYTES = 4
# The bits of eight bytes meet in the highest byte of the product, in either order of bytes.
_COLLECT = 0x0102040810204080 if sys.byteorder == "little" else 0x8040201008040201 - (1 << 64)


@dataclass(frozen=True, kw_only=True)
class Config:
    """One bit per entry."""

    error_feedback: bool = True
    """Add the compression error to the next gradient."""


class Sign:
    """The signs of a tensor, eight to a byte, after the mean of its magnitudes."""

    def state_names(self, name: str) -> list[str]:
        """Return no names: nothing is kept."""
        return []

    def compress(self, name: str, tensor: Tensor, state: State) -> Tensor:
        """Return mean magnitude and signs as bytes."""
        flat = tensor.reshape(-1)
        scale = flat.abs().mean().float() if flat.numel() else flat.new_zeros((), dtype=torch.float)
        bits = torch.nn.functional.pad((flat >= 0).view(torch.uint8), (0, -flat.numel() % 8))
        # Of eight bytes that are 0 or 1, this product has bit i in bit i of its last byte.
        packed = ((bits.view(torch.int64) * _COLLECT) >> 56).to(torch.uint8)
        return torch.cat([scale.reshape(1).view(torch.uint8), packed])

    def restore(self, message: Tensor, like: Tensor) -> Tensor:
        """Return plus or minus the mean magnitude for every entry."""
        head, packed = message.split([_SCALE_BYTES, message.numel() - _SCALE_BYTES])
        scale = head.clone().view(torch.float32).to(like.dtype)
        # The eight entries of every byte: looking them up is faster than to work with their bits.
        places = torch.arange(256, device=message.device)
        bits = places.unsqueeze(1) >> places[:8]
        entries = ((bits & 1) * 2 - 1).to(like.dtype) * scale
        found = torch.nn.functional.embedding(packed.int(), entries)
        return found.view(-1)[: like.numel()].view(like.shape)

    def message_bytes(self, elements: int) -> int:
        """Return one bit per entry and the magnitude."""
        return _SCALE_BYTES + (elements + 7) // 8


@register
class SignSgd(Technique[Config]):
    """One bit per gradient entry is sent."""

    name = "signsgd"
    order = Order.EXCHANGE
    replaces = frozenset({Stage.GRAD_SYNC})
    refuses = {"fp16_allreduce": "signsgd sends bits, which fp16_allreduce does not convert"}
    needs_workers = True
    differs_by_worker = True

    def _sync(self) -> CompressedSync:
        sign: Compressor = Sign()
        return CompressedSync(ErrorFeedback(sign) if self.config.error_feedback else sign)

    def change(self, step: TrainStep | ProgramStep) -> None:
        """Exchange signs after backward."""
        step.grad_sync = self._sync()

    def rows(self, sizes: Sizes) -> list[Row]:
        """Return what a step sends, and the memory of the residuals."""
        feedback = self.config.error_feedback
        return [
            Row(
                stage=Stage.GRAD_SYNC,
                technique=self.name,
                settings="one bit per entry" + (", error feedback" if feedback else ""),
                bytes_sent=self._sync().bytes_sent(sizes.elements, self.job.workers),
                memory=sizes.parameter_bytes if feedback else 0.0,
            )
        ]
