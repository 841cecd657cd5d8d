"""The five stages of a step on named tensors, each with its default behaviour.

    precision   in which precision forward runs, and whether the gradients can be used
    memory      which activations are kept for backward
    grad_sync   how workers exchange gradients
    update      how parameters follow their gradients
    param_sync  how workers exchange parameters

A technique replaces a stage by its own object. Between stages gradients are unscaled, and every
worker reaches every collective in the same step. `state_dict` returns the state that belongs into a
checkpoint.
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
    """The stages of a step, which a technique may change."""

    PRECISION = "precision"
    MEMORY = "memory"
    GRAD_SYNC = "grad_sync"
    UPDATE = "update"
    PARAM_SYNC = "param_sync"


class Guard(Protocol):
    """Checks losses and gradients, and may stop the training."""

    def note(self, loss: torch.Tensor | None) -> None:
        """Check the gradients after backward; called once per step."""

    def forget(self) -> None:
        """Discard the findings: the step is skipped anyway."""

    def agree(self) -> None:
        """Stop all workers if one has found something; all must call it."""


class Transaction(Protocol):
    """Decides together with the other workers whether a step is applied."""

    def collect(self, parameters: Parameters) -> bool:
        """Accumulate the gradients of a micro-batch; return whether it is the last one, so that
        the gradients are those of the whole batch.
        """

    def run(self, exchange: Callable[[], bool], apply: Callable[[bool], None]) -> None:
        """Run a step: `exchange` with the other workers, then `apply` what it returned."""


class _Stateless:
    """A stage without state."""

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
        """Return the tensor on which `minimize` calls backward for this loss."""
        return loss

    def message_scale(self) -> float:
        """Return the factor of gradients in half-precision messages."""
        return 1.0

    def expects_overflow(self) -> bool:
        """Return whether a loss scale may make a gradient infinite or NaN, so that it is not
        used.
        """
        return False

    def usable(
        self, parameters: Parameters, *, agreed: bool, others: Sequence[torch.Tensor] = ()
    ) -> bool:
        """Return whether the gradients are usable; the result is the same on all workers.

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
    """Gradients are averaged during backward, so that all workers have the same ones after it."""
    keeps_no_state = False
    """`exchange` has no state that an overflow would corrupt, so its result can be checked."""

    divides = False
    """After backward, a worker has only a part of the gradients."""

    def collect(self, parameters: Parameters) -> bool:
        """Collect the gradients of a backward pass; return whether to exchange and update now."""
        return True

    def updates_next(self) -> bool:
        """Return whether the next call of `collect` will return True."""
        return True

    def flush(self, parameters: Parameters) -> bool:
        """Restore the gradients collected so far; return whether any worker has some."""
        return False

    def exchange(self, parameters: Parameters) -> None:
        """Exchange the gradients; afterwards they are those of the update."""

    def innermost(self) -> GradientSync:
        """Return the exchange without the wrapper that collects gradients."""
        return self

    def others(self) -> list[torch.Tensor]:
        """Return gradients besides those of the parameters, such as those of rows; stages that
        change gradients of parameters change these too, in place.
        """
        return []

    def forget(self) -> None:
        """Discard gradients besides those of the parameters: the step is skipped."""

    def begin_as_newcomer(self) -> None:
        """Discard loaded state that belongs to another worker."""


class LocalGradients(GradientSync):
    """Every worker uses its own gradients."""

    during_backward = False


class Update(_Stateless):
    """The optimizer's own step changes the parameters."""

    def apply(self, optimizer: Optimizer) -> None:
        """Update the parameters with the optimizer."""
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
    """`after_update` needs the loss."""

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
