"""Gradients of a step that a worker computes in several micro-batches to save memory."""

from __future__ import annotations

import torch

from fleetx.step.stages import Parameters


class GradientParts:
    """The sum of the gradients so far, each weighted by the samples of its part."""

    def __init__(self) -> None:
        self.count = 0
        """The samples so far."""
        self._sums: dict[str, torch.Tensor] = {}

    @torch.no_grad()
    def add(self, parameters: Parameters, count: int) -> None:
        """Add the gradients of a part, which are means over its `count` samples."""
        self.count += count
        for name, parameter in parameters.items():
            if parameter.grad is None:
                continue
            gradient, parameter.grad = parameter.grad.mul_(count), None
            before = self._sums.get(name)
            self._sums[name] = gradient if before is None else before.add_(gradient)

    @torch.no_grad()
    def give_back(self, parameters: Parameters) -> None:
        """Store the means over all samples in `grad` of the parameters, and reset."""
        for name, total in self._sums.items():
            parameters[name].grad = total.div_(self.count)
        self._sums, self.count = {}, 0
