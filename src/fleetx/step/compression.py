"""Exchanging compressed gradients: what a compressor is, error feedback, and the exchange itself.

A `Compressor` turns a gradient into a message of bytes and back. `ErrorFeedback` wraps one: what a
message loses is added to the next gradient. `CompressedSync` sends every worker's messages to all
others and averages what comes back; it serves modules (gradients of parameters) and programs
(tensors of the scope) alike, and keeps what it remembers by name.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from typing import Any, Protocol

import torch
from torch import Tensor

from fleetx.comm import world
from fleetx.runtime import heartbeat
from fleetx.step.stages import GradientSync, Parameters

State = MutableMapping[str, Tensor]
"""Tensors by name: a plain dict for modules, persistable variables for programs."""
RESIDUAL = "@RESIDUAL"


class Compressor(Protocol):
    """Turns a tensor into bytes and back, with a loss."""

    def state_names(self, name: str) -> list[str]:
        """Return the names of the tensors, shaped like the gradient, that it keeps for one."""

    def compress(self, name: str, tensor: Tensor, state: State) -> Tensor:
        """Return the message for a tensor: bytes, as many for every tensor of this shape."""

    def restore(self, message: Tensor, like: Tensor) -> Tensor:
        """Return the tensor that a message stands for."""

    def message_bytes(self, elements: int) -> int:
        """Return the size of the message for so many elements."""


class ErrorFeedback:
    """Adds to each gradient what the messages before it have lost."""

    def __init__(self, inner: Compressor) -> None:
        self._inner = inner

    def state_names(self, name: str) -> list[str]:
        """Return the residual's name, and those of the inner compressor."""
        return [name + RESIDUAL, *self._inner.state_names(name)]

    def compress(self, name: str, tensor: Tensor, state: State) -> Tensor:
        """Compress the sum of gradient and residual; keep what is lost."""
        residual = state[name + RESIDUAL]
        residual.add_(tensor)
        message = self._inner.compress(name, residual, state)
        residual.sub_(self._inner.restore(message, residual))
        return message

    def restore(self, message: Tensor, like: Tensor) -> Tensor:
        """Return the tensor that a message stands for."""
        return self._inner.restore(message, like)

    def message_bytes(self, elements: int) -> int:
        """Return the size of a message."""
        return self._inner.message_bytes(elements)


class CompressedSync(GradientSync):
    """Averages gradients that travel compressed, after backward."""

    during_backward = False

    def __init__(self, compressor: Compressor) -> None:
        self.compressor = compressor
        self.state: dict[str, Tensor] = {}

    @torch.no_grad()
    def exchange(self, parameters: Parameters) -> None:
        """Replace every gradient by the mean of all workers' messages; a missing one counts 0."""
        trained = {name: p for name, p in parameters.items() if p.requires_grad}
        gradients = {name: _dense_gradient(p) for name, p in trained.items()}
        for name, gradient in gradients.items():
            for key in self.compressor.state_names(name):
                if key not in self.state:
                    self.state[key] = torch.zeros_like(gradient)
        for name, mean in self.mean(gradients, self.state).items():
            trained[name].grad = mean

    @torch.no_grad()
    def mean(self, gradients: Mapping[str, Tensor], state: State) -> dict[str, Tensor]:
        """Return the means over all workers, the same bits on each."""
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
        """Return what a worker sends in a step, for gradients of these sizes."""
        return float((workers - 1) * sum(map(self.compressor.message_bytes, sizes)))

    def state_dict(self) -> dict[str, Any]:
        """Return what the compressor keeps."""
        return {"state": dict(self.state)} if self.state else {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over what `state_dict` returned."""
        self.state = dict(state["state"])


def _dense_gradient(parameter: Tensor) -> Tensor:
    if parameter.grad is None:
        return torch.zeros_like(parameter)
    return parameter.grad.to_dense() if parameter.grad.is_sparse else parameter.grad
