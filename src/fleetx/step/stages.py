"""The five stages of a step on named tensors, each with what happens when no technique is on.

    precision   in which precision forward runs, and whether the gradients can be used
    memory      which activations are kept for backward
    grad_sync   how workers exchange gradients
    update      how parameters follow their gradients
    param_sync  how workers exchange parameters

A technique puts an object of its own in the place of a stage. Between stages gradients are in true
units, and every worker reaches every collective in the same step. State that a checkpoint must hold
is in `state_dict`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Any, Protocol

import torch
from torch import nn
from torch.optim import Optimizer

Parameters = Mapping[str, torch.Tensor]


class Stage(StrEnum):
    """The places of a step that a technique may change."""

    PRECISION = "precision"
    MEMORY = "memory"
    GRAD_SYNC = "grad_sync"
    UPDATE = "update"
    PARAM_SYNC = "param_sync"


class Guard(Protocol):
    """Checks losses and gradients, and may stop the training."""

    def note(self, loss: torch.Tensor | None) -> None:
        """Check what backward has left; called once per step."""

    def forget(self) -> None:
        """Discard what was found: the step is skipped anyway."""

    def agree(self) -> None:
        """Stop all workers if one has found something; all must call it."""


class Transaction(Protocol):
    """Decides together with the other workers whether a step counts."""

    def collect(self, parameters: Parameters) -> bool:
        """Take the gradients of a part of this worker's batch; return whether it is the last, and
        the gradients are those of the whole batch."""

    def run(self, exchange: Callable[[], bool], apply: Callable[[bool], None]) -> None:
        """Run a step: `exchange` with the other workers, then `apply` what it returned."""


class _Stateless:
    """A stage without state of its own."""

    def state_dict(self) -> dict[str, Any]:
        """Return the state that a checkpoint must hold."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load what `state_dict` returned."""


class Precision(_Stateless):
    """Forward runs in the precision of the parameters, and every gradient is used."""

    def wrap_forward(self, forward: Callable[..., Any]) -> Callable[..., Any]:
        """Return the forward function of a model as this stage runs it."""
        return forward

    def watch(self, parameters: Parameters) -> None:
        """Prepare for these parameters; called once, before the first step."""

    def scaled(self, loss: torch.Tensor) -> torch.Tensor:
        """Return what `minimize` calls backward on for this loss."""
        return loss

    def message_scale(self) -> float:
        """Return what gradients are multiplied by while they travel in half precision."""
        return 1.0

    def expects_overflow(self) -> bool:
        """Return whether a gradient may be infinite or NaN because of a scale, and is then not
        used."""
        return False

    def usable(
        self, parameters: Parameters, *, agreed: bool, others: Sequence[torch.Tensor] = ()
    ) -> bool:
        """Return whether the gradients can be used; all workers get one answer.

        `agreed`: all workers have the same gradients already, so no agreement is needed. `others`
        are gradients beside those of the parameters.
        """
        return True


class Memory(_Stateless):
    """All activations are kept."""

    def prepare(self, model: nn.Module) -> nn.Module:
        """Return the model to train."""
        return model


class GradientSync(_Stateless):
    """Gradients are averaged while backward runs (DDP's reducer); with one worker, not at all."""

    during_backward = True
    """Backward itself averages, so that all workers have the same gradients when it ends."""
    keeps_no_state = False
    """`exchange` keeps nothing that an overflow would spoil, so that what it returns is checked."""

    divides = False
    """A worker has a part of the gradients when backward has ended."""

    def collect(self, parameters: Parameters) -> bool:
        """Take a backward pass's gradients; tell whether it is time to exchange and update."""
        return True

    def updates_next(self) -> bool:
        """Return whether the next call of `collect` will ask for an update."""
        return True

    def flush(self, parameters: Parameters) -> bool:
        """Restore what is collected so far; return whether any worker has anything."""
        return False

    def exchange(self, parameters: Parameters) -> None:
        """Make the gradients those to update with."""

    def innermost(self) -> GradientSync:
        """Return the exchange itself, without what collects gradients before it."""
        return self

    def others(self) -> list[torch.Tensor]:
        """Return gradients that are kept beside those of the parameters, such as those of rows;
        what changes the gradients of parameters changes these in place."""
        return []

    def forget(self) -> None:
        """Discard gradients that are kept beside those of the parameters: the step is skipped."""

    def begin_as_newcomer(self) -> None:
        """Discard what belongs to the worker whose state was loaded, and not to this one."""


class LocalGradients(GradientSync):
    """Every worker uses its own gradients."""

    during_backward = False


class Update(_Stateless):
    """The optimizer's own step changes the parameters."""

    def apply(self, optimizer: Optimizer) -> None:
        """Update the parameters by the optimizer."""
        optimizer.step()

    def optimizer_state(self, optimizer: Optimizer) -> dict[str, Any]:
        """Return the optimizer's state, whole; all workers must call it if each has a part."""
        return optimizer.state_dict()

    def load_optimizer_state(self, optimizer: Optimizer, state: dict[str, Any]) -> None:
        """Load what `optimizer_state` returned."""
        optimizer.load_state_dict(state)


class ParameterSync(_Stateless):
    """Parameters are not exchanged: equal gradients keep them equal."""

    needs_loss = False
    """`after_update` wants to know the loss."""

    trains_alone = False
    """Workers do not wait for each other between two exchanges of parameters."""
    behind = 0
    """Updates since parameters were last equal on all workers."""
    count = 0
    """Updates so far, if the stage counts them."""
    save_wait = 0.0
    """Seconds that a save waits for all workers to average first, if parameters are not equal."""

    @property
    def has_met(self) -> bool:
        """Whether the workers have waited for each other after this update."""
        return not self.behind

    def after_update(self, parameters: Parameters, loss: torch.Tensor | None) -> None:
        """Exchange parameters, if it is time; `parameters` has buffers (statistics) too."""

    def synchronize(self, parameters: Parameters) -> None:
        """Make parameters equal on all workers, which must all call it."""
