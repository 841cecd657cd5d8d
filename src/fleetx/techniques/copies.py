"""Copies of a model that is divided between workers, and what they exchange with each other.

A technique such as `localsgd` or `dgc` exchanges gradients or parameters between workers that each
have the whole model. If a copy is a group of workers, every worker exchanges its own part with its
counterparts in the other copies, so that each part crosses the slow links between groups once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from fleetx.comm.divided_tensors import is_divided, own_part
from fleetx.step.stages import GradientSync, Parameters, ParameterSync
from fleetx.step.technique import Technique
from fleetx.techniques.parameter_average import AverageConfig

Own = Callable[[Parameters], Parameters]
"""Returns this worker's part of the tensors of a step."""


class OwnParts:
    """This worker's parts of divided tensors, as plain tensors in the same memory."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[Tensor, Tensor]] = {}

    def __call__(self, parameters: Parameters) -> dict[str, Tensor]:
        """Return the parts by name; they are the same objects as long as the tensors are."""
        return {name: self._part(name, tensor) for name, tensor in parameters.items()}

    def _part(self, name: str, tensor: Tensor) -> Tensor:
        if not is_divided(tensor):
            return tensor
        known = self._known.get(name)
        with torch.no_grad():
            memory = own_part(tensor)
        if known is None or known[0] is not tensor or known[1].data_ptr() != memory.data_ptr():
            part = nn.Parameter(memory.detach(), requires_grad=tensor.requires_grad)
            known = self._known[name] = tensor, part
        return known[1]


def check_parts(exchange: Technique[Any], divided: str, way: str) -> None:
    """Refuse a technique between copies that needs whole gradients or optimizer state, where
    workers have parts of tensors."""
    if not isinstance(exchange.config, AverageConfig):
        raise ValueError(
            f"the strategy switches on {exchange.name}, which exchanges whole gradients between "
            f"copies, and {divided}, which leaves workers parts of them: {way}, or take localsgd."
        )
    if exchange.config.average_momentum:
        raise ValueError(
            f"{exchange.name}_configs['average_momentum'] averages optimizer state, of which "
            f"{divided} leaves workers parts: set it to False, or {way}."
        )


class InsideFirst(GradientSync):
    """Gradients are exchanged inside a group, then a worker's own part of them between groups."""

    during_backward = False
    keeps_no_state = divides = True

    def __init__(self, inside: GradientSync, between: GradientSync, own: Own) -> None:
        self._inside = inside
        self._between = between
        self._own = own

    def exchange(self, parameters: Parameters) -> None:
        """Exchange inside the group, then between groups."""
        self._inside.exchange(parameters)
        self._between.exchange(self._own(parameters))

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the exchange between groups; inside there is none."""
        return self._between.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load what `state_dict` returned."""
        self._between.load_state_dict(state)


class BetweenFirst(ParameterSync):
    """A worker's own parameters are exchanged between groups, then all of them inside a group."""

    def __init__(self, between: ParameterSync, inside: ParameterSync, own: Own) -> None:
        self._between = between
        self._inside = inside
        self._own = own
        self.needs_loss = between.needs_loss
        self.trains_alone = between.trains_alone
        self.save_wait = between.save_wait

    @property
    def behind(self) -> int:  # type: ignore[override]
        """Updates since parameters were last equal on all workers."""
        return self._between.behind

    @property
    def count(self) -> int:  # type: ignore[override]
        """Updates so far."""
        return self._between.count

    def after_update(self, parameters: Parameters, loss: Tensor | None) -> None:
        """Exchange between groups, if it is time, and inside."""
        self._between.after_update(self._own(parameters), loss)
        self._inside.after_update(parameters, loss)

    def synchronize(self, parameters: Parameters) -> None:
        """Make parameters equal on all workers."""
        self._between.synchronize(self._own(parameters))
        self._inside.after_update(parameters, None)

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the exchange between groups."""
        return self._between.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load what `state_dict` returned."""
        self._between.load_state_dict(state)
