"""An exchange of gradients by name, with its state in named tensors: one stage for both front ends.

For modules the gradients are those of parameters and the state is a dict; for programs both are
tensors of the scope, and the op `exchange_gradients` calls `mean`.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from typing import Any

import torch
from torch import Tensor

from fleetx.step.stages import GradientSync, Parameters

State = MutableMapping[str, Tensor]
"""Tensors by name: a plain dict for modules, persistable variables for programs."""


class NamedExchange(GradientSync):
    """Averages gradients after backward; what it remembers is in tensors by name."""

    during_backward = False

    def __init__(self) -> None:
        self.state: dict[str, Tensor] = {}
        self._prepared: set[str] = set()

    def first_state(self, gradients: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the tensors to keep for gradients, all zero; for gradients on the meta device
        (a program that is being written) only shape and type count."""
        return {}

    def mean(self, gradients: Mapping[str, Tensor], state: State) -> dict[str, Tensor]:
        """Return the means over all workers, the same bits on each; change the state in place."""
        raise NotImplementedError

    @torch.no_grad()
    def exchange(self, parameters: Parameters) -> None:
        """Replace every gradient by the mean of all workers'; a missing one counts 0."""
        trained = {name: p for name, p in parameters.items() if p.requires_grad}
        gradients = {name: _dense_gradient(p) for name, p in trained.items()}
        self._prepare(gradients)
        for name, mean in self.mean(gradients, self.state).items():
            trained[name].grad = mean

    def _prepare(self, gradients: Mapping[str, Tensor]) -> None:
        """Make what is to be kept for gradients that were not there before."""
        new = {name: g for name, g in gradients.items() if name not in self._prepared}
        for key, first in self.first_state(new).items() if new else ():
            loaded = self.state.get(key, first)
            if loaded.shape != first.shape:
                raise ValueError(
                    f"the loaded state has {key} with the shape {tuple(loaded.shape)}, but the "
                    f"exchange of gradients keeps one with {tuple(first.shape)}: use the settings "
                    "that the state was saved with, or start without it."
                )
            self.state[key] = loaded.to(first.device)
        self._prepared.update(new)

    def state_dict(self) -> dict[str, Any]:
        """Return what is kept."""
        return {"state": dict(self.state)} if self.state else {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over what `state_dict` returned."""
        self.state = {key: tensor.clone() for key, tensor in state["state"].items()}
        self._prepared.clear()


def _dense_gradient(parameter: Tensor) -> Tensor:
    if parameter.grad is None:
        return torch.zeros_like(parameter)
    return parameter.grad.to_dense() if parameter.grad.is_sparse else parameter.grad
