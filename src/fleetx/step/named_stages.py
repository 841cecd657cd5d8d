"""Stages that are functions of named tensors, with their state in named tensors too.

They serve both front ends: for modules the state is a dict, for programs persistable variables, and
an op runs the stage on tensors of the scope (`exchange_gradients`, `clip_gradients`,
`sync_parameters`).
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from typing import Any

import torch
from torch import Tensor

from fleetx.step.stages import GradientSync, Parameters, ParameterSync

RESIDUAL = "@RESIDUAL"
"""The suffix of the names of residuals: the compression error of a worker's own messages."""

State = MutableMapping[str, Tensor]
"""Tensors by name: a plain dict for modules, persistable variables for programs."""


class NamedState:
    """Base of stages that keep their state in named tensors."""

    def __init__(self) -> None:
        self.state: dict[str, Tensor] = {}
        self._prepared: set[str] = set()

    def first_state(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the state to keep for tensors, all zero; for tensors on the meta device (a program
        that is being written) only shape and type count."""
        return {}

    def prepare(self, tensors: Mapping[str, Tensor]) -> None:
        """Create the state of tensors that have none yet."""
        new = {name: t for name, t in tensors.items() if name not in self._prepared}
        for key, first in self.first_state(new).items() if new else ():
            loaded = self.state.get(key, first)
            if loaded.shape != first.shape:
                raise ValueError(
                    f"the loaded state has {key} with the shape {tuple(loaded.shape)}, but "
                    f"{type(self).__name__} keeps one with {tuple(first.shape)}: use the settings "
                    "that the state was saved with, or start without it."
                )
            self.state[key] = loaded.to(first.device)
        self._prepared.update(new)

    def state_dict(self) -> dict[str, Any]:
        """Return the state."""
        return {"state": dict(self.state)} if self.state else {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load what `state_dict` returned."""
        self.state = {key: tensor.clone() for key, tensor in state["state"].items()}
        self._prepared.clear()


class NamedExchange(NamedState, GradientSync):
    """Averages gradients after backward."""

    during_backward = False

    def mean(self, gradients: Mapping[str, Tensor], state: State) -> dict[str, Tensor]:
        """Return the means over all workers, the same bits on each; change the state in place."""
        raise NotImplementedError

    @torch.no_grad()
    def exchange(self, parameters: Parameters) -> None:
        """Replace every gradient by the mean over all workers; a missing one counts as 0."""
        trained = {name: p for name, p in parameters.items() if p.requires_grad}
        gradients = {name: _dense_gradient(p) for name, p in trained.items()}
        self.prepare(gradients)
        for name, mean in self.mean(gradients, self.state).items():
            trained[name].grad = mean

    def begin_as_newcomer(self) -> None:
        """Discard residuals of another worker, which keeps and sends them itself."""
        for name, tensor in self.state.items():
            if name.endswith(RESIDUAL):
                tensor.zero_()


class NamedClip(NamedState):
    """Changes the gradients between exchange and update.

    A clip without state may be a plain function of parameters instead.
    """

    def clip(self, parameters: Parameters, state: State) -> None:
        """Change the gradients of parameters, and the state in place."""
        raise NotImplementedError

    @torch.no_grad()
    def __call__(self, parameters: Parameters) -> None:
        """Clip the gradients of a module."""
        self.prepare(parameters)
        self.clip(parameters, self.state)


class NamedParameterSync(NamedState, ParameterSync):
    """Exchanges parameters, and floating statistics that are not trained, after the update."""

    def sync(self, parameters: Parameters, state: State) -> dict[str, Tensor]:
        """Return the new values of parameters, those that change; change the state in place."""
        raise NotImplementedError

    @torch.no_grad()
    def after_update(self, parameters: Parameters, loss: Tensor | None) -> None:
        """Assign the new values of parameters."""
        self.prepare(parameters)
        for name, value in self.sync(parameters, self.state).items():
            parameters[name].copy_(value)


def _dense_gradient(parameter: Tensor) -> Tensor:
    if parameter.grad is None:
        return torch.zeros_like(parameter)
    return parameter.grad.to_dense() if parameter.grad.is_sparse else parameter.grad
