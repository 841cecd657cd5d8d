"""The composed step of a PyTorch module: five stages, run around the script's own backward.

A script calls forward, `loss.backward()` and `optimizer.step()`. The first runs under `precision`
and `memory`, the second may average gradients as it goes, the third is `run` here:

    collect -> usable on all workers? -> exchange -> clip -> update -> exchange parameters

A plain average comes before the question whether its result can be used.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import torch
from torch import nn
from torch.optim import Optimizer

from fleetx.comm.divided_tensors import whole
from fleetx.step.activations import Activations
from fleetx.step.fused_update import fuse_update
from fleetx.step.gradient_sync import is_all_reduce
from fleetx.step.replaced_parameters import ReplacedParameters
from fleetx.step.slots import FixedSlots
from fleetx.step.stages import (
    GradientSync,
    Guard,
    Memory,
    Parameters,
    ParameterSync,
    Precision,
    Transaction,
    Update,
)


class Batches(Protocol):
    """Runs batches of inputs and targets; returns the mean loss."""

    def train(self, inputs: Any, targets: Any, loss_fn: Callable[..., Any]) -> torch.Tensor:
        """Run forward and backward."""

    def evaluate(self, inputs: Any, targets: Any, loss_fn: Callable[..., Any]) -> torch.Tensor:
        """Run forward."""


class StageState(Protocol):
    """The state of a model of which workers have different layers."""

    roots: list[nn.Module]
    """What this worker runs of the model."""

    def whole_state(self, state: Mapping[str, Any]) -> dict[str, Any]:
        """Return the state of all layers; all workers must call it."""

    def own_state(self, state: Mapping[str, Any], model: nn.Module) -> dict[str, Any]:
        """Return the part of a whole state that this worker loads."""


class TrainStep(FixedSlots):
    """One model, one optimizer, and the stages between them."""

    trains = "module"

    def __init__(self) -> None:
        self.precision = Precision()
        self.memory = Memory()
        self.grad_sync = GradientSync()
        self.updater = Update()
        self.param_sync = ParameterSync()
        self.clip: Callable[[Parameters], None] | None = None
        """Bounds the gradients before an update."""
        self.guard: Guard | None = None
        """Looks at losses and gradients, and may end the training."""
        self.parameters: dict[str, torch.Tensor] = {}
        """What is trained, by name."""
        self.when_named: list[Callable[[dict[str, torch.Tensor]], None]] = []
        """Called with `parameters` when model and optimizer are both known."""
        self.placers: list[Callable[[nn.Module], None]] = []
        """Called with the model, which is equal on all workers, to divide it between them."""
        self.batches: Batches | None = None
        """Runs forward and backward of whole batches, where the script cannot (pipeline)."""
        self.stage_state: StageState | None = None
        """What this worker has of the model's state, where others have other layers."""
        self.on_loss: Callable[[torch.Tensor], None] | None = None
        """Callback for the loss passed to `step` or `minimize`; set by the monitor."""
        self._model: nn.Module | None = None
        self._optimizer: Optimizer | None = None
        self._tensors: dict[str, torch.Tensor] = {}
        self._transaction: Transaction | None = None
        self._activations: Activations | None = None
        self._replaced = ReplacedParameters()
        self._fix_slots()

    @property
    def is_plain(self) -> bool:
        """Whether only the optimizer's own step follows backward."""
        return (
            type(self.precision) is Precision
            and type(self.grad_sync) is GradientSync
            and type(self.updater) is Update
            and type(self.param_sync) is ParameterSync
            and self.clip is None
            and self.guard is None
        )

    @property
    def model(self) -> nn.Module | None:
        """The model that is trained, if it is known."""
        return self._model

    @property
    def update(self) -> Optimizer:
        """The optimizer that changes the parameters, or says how they are changed elsewhere."""
        if self._optimizer is None:
            raise RuntimeError("call fleet.distributed_optimizer(optimizer) first.")
        return self._optimizer

    def take_optimizer(self, optimizer: Optimizer) -> None:
        """Update with this optimizer."""
        self._optimizer = optimizer
        self._replaced.take_optimizer(optimizer)
        fuse_update(optimizer)
        self._name()

    @property
    def activations(self) -> Activations | None:
        """What was counted of activations; None if nothing is to be."""
        return self._activations

    def count_activations(self) -> Activations:
        """Return what counts the activations of the next step; techniques that divide the model
        want it, or someone has asked for an explanation."""
        if self._activations is None:
            self._activations = Activations()
            if self._model is not None and self.batches is None:
                self._activations.watch(self._model)
            if self._optimizer is not None and self.is_plain:  # its own step ends it
                end = self._activations.end
                handle = self.update.register_step_post_hook(lambda *_: end())
                self._activations.until_known(handle.remove)
        return self._activations

    def place(self, model: nn.Module) -> None:
        """Divide a model that is equal on all workers, as techniques want it."""
        if not self.placers:
            return
        before = dict(model.named_parameters())
        for divide in self.placers:
            divide(model)
        self._replaced.note(before, model)
        if self._optimizer is not None:
            self._replaced.take_optimizer(self._optimizer)

    def take_model(self, model: nn.Module) -> None:
        """Train this model: names come from it, and statistics to average with parameters."""
        self._model = model
        if self._activations is not None and self.batches is None:
            self._activations.watch(model)
        self._name()

    def _name(self) -> None:
        """Find out what is trained, under which names."""
        if self._optimizer is None:
            return
        groups = self._optimizer.param_groups
        if self._model is None:  # a script without a distributed model: numbers are the names
            self.parameters = {
                f"group{i}.{j}": p for i, g in enumerate(groups) for j, p in enumerate(g["params"])
            }
            self._tensors = dict(self.parameters)
            return
        held = {id(p) for group in groups for p in group["params"]}
        named: dict[str, torch.Tensor] = dict(self._model.named_parameters())
        found = {name: p for name, p in named.items() if id(p) in held}
        missing = len(held) - len({id(p) for p in found.values()})
        if missing:
            raise ValueError(
                f"{missing} of the optimizer's {len(held)} parameters are not in the model that "
                "fleet.distributed_model was given: make the optimizer from model.parameters()."
            )
        self.parameters = found
        buffers = {n: b for n, b in self._model.named_buffers() if b.is_floating_point()}
        self._tensors = {**found, **buffers}
        self.precision.watch(found)
        for tell in self.when_named:
            tell(found)

    def decide_by(self, transaction: Transaction) -> None:
        """Let a transaction decide which steps count, in an elastic job."""
        self._transaction = transaction

    def run(self, loss: torch.Tensor | None = None) -> None:
        """Do everything that follows backward."""
        if self._activations is not None:
            self._activations.end()
        loss = whole(loss)  # where workers divide its outputs, it is a tensor that all have
        self._check_loss(loss)
        if self.guard is not None:
            self.guard.note(loss)
        if self._transaction is not None and not self._transaction.collect(self.parameters):
            return
        if self.grad_sync.collect(self.parameters):
            self._finish(loss)

    def flush(self, loss: torch.Tensor | None = None) -> None:
        """Update with gradients that are collected so far; all workers must call it."""
        loss = whole(loss)
        self._check_loss(loss)
        if self.grad_sync.flush(self.parameters):
            self._finish(loss)

    def synchronize(self) -> None:
        """Make parameters and statistics equal on all workers, which must all call it."""
        self.param_sync.synchronize(self._tensors)

    def _check_loss(self, loss: torch.Tensor | None) -> None:
        if self.param_sync.needs_loss and loss is None:
            raise ValueError(
                "adaptive_localsgd chooses its interval by the loss: call "
                "optimizer.minimize(loss), optimizer.step(loss=loss) or "
                "optimizer.flush(loss=loss)."
            )

    def _finish(self, loss: torch.Tensor | None) -> None:
        """Exchange what was collected and update."""
        if self._transaction is None:
            self._apply(self._exchange(), loss)
        else:
            self._transaction.run(self._exchange, lambda usable: self._apply(usable, loss))

    def _exchange(self) -> bool:
        """Make the gradients those to update with; return whether they can be used."""
        if self.guard is not None:
            if self.precision.expects_overflow():
                self.guard.forget()
            elif not self.param_sync.trains_alone:
                self.guard.agree()
        # Averages are equal everywhere; other exchanges keep state, which an overflow would spoil.
        averages = is_all_reduce(self.grad_sync)
        is_first = averages or self.grad_sync.innermost().keeps_no_state
        if is_first:
            self.grad_sync.exchange(self.parameters)
        agreed = averages or self.grad_sync.during_backward
        usable = self.precision.usable(
            self.parameters, agreed=agreed, others=self.grad_sync.others()
        )
        if usable and not is_first:
            self.grad_sync.exchange(self.parameters)
        return usable

    def _apply(self, usable: bool, loss: torch.Tensor | None) -> None:
        """Update by the gradients, unless they cannot be used, and exchange parameters."""
        if usable:
            if self.clip is not None:
                self.clip(self.parameters)
            self.updater.apply(self.update)
        else:
            self.grad_sync.forget()
        self.param_sync.after_update(self._tensors, loss)
        # Workers that train alone agree at the next exchange.
        if self.guard is not None and self.param_sync.trains_alone and self.param_sync.has_met:
            self.guard.agree()

    def state_dict(self) -> dict[str, Any]:
        """Return the state of all stages but the optimizer's own; empty if none has any."""
        states = {name: stage.state_dict() for name, stage in self._stages()}
        return {name: state for name, state in states.items() if state}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load what `state_dict` returned."""
        for name, stage in self._stages():
            if name in state:
                stage.load_state_dict(state[name])

    def _stages(self) -> list[tuple[str, Any]]:
        names = ("precision", "memory", "grad_sync", "updater", "param_sync")
        clip = [("clip", self.clip)] if hasattr(self.clip, "state_dict") else []
        return [*((name, getattr(self, name)) for name in names), *clip]
