"""Exchanging compressed gradients: what a compressor is, error feedback, and the exchange itself.

A `Compressor` turns a gradient into a message of bytes and back. `ErrorFeedback` wraps one: the
compression error is added to the next gradient. `CompressedSync` sends every worker's messages to
all others and averages the decompressed gradients, for modules and programs (`named_stages`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import torch
from torch import Tensor

from fleetx.comm import world
from fleetx.runtime import heartbeat
from fleetx.step.named_stages import RESIDUAL, NamedExchange, State

__all__ = ["RESIDUAL", "CompressedSync", "Compressor", "ErrorFeedback", "State"]


class Compressor(Protocol):
    """Lossy conversion of a tensor to bytes and back."""

    def state_names(self, name: str) -> list[str]:
        """Return the names of its state tensors, shaped like the gradient."""

    def compress(self, name: str, tensor: Tensor, state: State) -> Tensor:
        """Return the message for a tensor: bytes, whose number depends only on its shape."""

    def restore(self, message: Tensor, like: Tensor) -> Tensor:
        """Return the decompressed tensor of a message."""

    def message_bytes(self, elements: int) -> int:
        """Return the size of the message for so many elements."""


class ErrorFeedback:
    """Adds the compression error of earlier messages to each gradient."""

    def __init__(self, inner: Compressor) -> None:
        self._inner = inner

    def state_names(self, name: str) -> list[str]:
        """Return the residual's name, and those of the inner compressor."""
        return [name + RESIDUAL, *self._inner.state_names(name)]

    def compress(self, name: str, tensor: Tensor, state: State) -> Tensor:
        """Compress the sum of gradient and residual; keep the error as the new residual."""
        residual = state[name + RESIDUAL]
        residual.add_(tensor)
        message = self._inner.compress(name, residual, state)
        residual.sub_(self._inner.restore(message, residual))
        return message

    def restore(self, message: Tensor, like: Tensor) -> Tensor:
        """Return the decompressed tensor of a message."""
        return self._inner.restore(message, like)

    def message_bytes(self, elements: int) -> int:
        """Return the size of a message."""
        return self._inner.message_bytes(elements)


class CompressedSync(NamedExchange):
    """Exchanges compressed gradients after backward, and averages them."""

    def __init__(self, compressor: Compressor) -> None:
        super().__init__()
        self.compressor = compressor

    def first_state(self, gradients: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the state of the compressor, shaped like the gradients."""
        names = {name: self.compressor.state_names(name) for name in gradients}
        return {key: torch.zeros_like(gradients[name]) for name in names for key in names[name]}

    @torch.no_grad()
    def mean(self, gradients: Mapping[str, Tensor], state: State) -> dict[str, Tensor]:
        """Return the means of all workers' decompressed gradients."""
        if not gradients:
            return {}
        messages = [self.compressor.compress(n, g, state) for n, g in gradients.items()]
        sizes = [message.numel() for message in messages]
        with heartbeat.collective("compressed gradients"):
            received = world.all_gather(torch.cat(messages))
        means = {name: torch.zeros_like(g) for name, g in gradients.items()}
        for whole in received:
            for mean, message in zip(means.values(), whole.split(sizes), strict=True):
                mean.add_(self.compressor.restore(message, mean))
        for mean in means.values():
            mean.div_(len(received))
        return means

    def bytes_sent(self, sizes: tuple[int, ...], workers: int) -> float:
        """Return the bytes that a worker sends in a step, for gradients of these sizes."""
        return float((workers - 1) * sum(map(self.compressor.message_bytes, sizes)))
