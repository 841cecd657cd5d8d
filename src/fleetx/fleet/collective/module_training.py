"""PyTorch models and optimizers of a session, and the composed steps that join them.

`distributed_model` and `distributed_optimizer` may come in either order, and there may be several
pairs (two networks, two optimizers): an optimizer belongs to the model that has its parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import partial

import torch
from torch import nn

from fleetx.comm import world
from fleetx.fleet.collective.auto_batch import Batch
from fleetx.fleet.collective.auto_model import AutoModel, ModelSearch
from fleetx.fleet.collective.distributed_model import LooksLikeItsModule
from fleetx.fleet.collective.distributed_optimizer import DistributedOptimizer
from fleetx.fleet.collective.elastic_rules import prepare_step
from fleetx.fleet.collective.elastic_state import TrainingState
from fleetx.fleet.collective.elastic_training import ElasticTraining
from fleetx.fleet.collective.explain import Explanation, announce, explain, module_sizes
from fleetx.fleet.collective.gradient_watch import GradientWatch
from fleetx.fleet.collective.held import held_by
from fleetx.fleet.collective.observing import describe, observe_step
from fleetx.fleet.collective.update_watch import UpdateWatch
from fleetx.fleet.collective.wrapping import wrap
from fleetx.fleet.strategy.agreement_card import (
    how_it_is_trained,
    what_is_trained,
    what_was_asked,
)
from fleetx.step.compose import compose_step, compose_update
from fleetx.step.stages import Stage
from fleetx.step.technique import Job, Technique
from fleetx.step.train_step import TrainStep


@dataclass
class Pair:
    """A model, its optimizer, and the step they make; one of them may be missing yet."""

    job: Job
    techniques: list[Technique]
    step: TrainStep
    parameters: set[int] = field(default_factory=set)
    model: LooksLikeItsModule | None = None
    optimizer: DistributedOptimizer | None = None

    @property
    def update(self) -> torch.optim.Optimizer | None:
        """The optimizer that the step calls; None if there is none yet."""
        return None if self.optimizer is None else self.step.update

    @property
    def calls(self) -> int:
        """The number of calls of the step."""
        return 0 if self.optimizer is None else self.optimizer.calls

    @property
    def acting(self) -> list[str]:
        """The techniques that act in the step, not in forward and backward alone."""
        return [t.name for t in self.techniques if self._acts(t)]

    def _acts(self, technique: Technique) -> bool:
        changed = technique.replaces | technique.wraps
        if Stage.GRAD_SYNC in changed and not self.step.grad_sync.during_backward:
            return True
        if Stage.PRECISION in changed and self.step.precision.expects_overflow():
            return True
        if changed & {Stage.UPDATE, Stage.PARAM_SYNC}:
            return True
        # Wrappers of the optimizer and monitors act in its step, if the script switched them on.
        wraps = type(technique).change_update is not Technique.change_update
        looks_on = self.step.owner("guard") is technique
        return (wraps or looks_on) and bool(getattr(self.job.strategy, technique.name, False))


class EagerTraining:
    """The pairs of a session; `choose` returns the job and the techniques to train with."""

    def __init__(
        self, choose: Callable[[], tuple[Job, list[Technique]]], search: ModelSearch
    ) -> None:
        self._choose = choose
        self._search = search
        self._elastic: ElasticTraining | None = None
        self.pairs: list[Pair] = []
        self._updates = UpdateWatch(self.pairs)

    def join(self, elastic: ElasticTraining) -> None:
        """Train as a worker of an elastic job."""
        self._elastic = elastic

    def end(self) -> None:
        """Stop watching the models."""
        self._updates.end()

    def _pair_for(self, parameters: Iterable[torch.Tensor], missing: str) -> Pair:
        """Return the pair with these parameters that lacks a model or optimizer, or a new one."""
        ids = {id(p) for p in parameters}
        for pair in self.pairs:
            if getattr(pair, missing) is None and pair.parameters & ids:
                return pair
        job, techniques = self._choose()
        pair = Pair(job, techniques, compose_step(techniques), ids)
        if self._elastic is not None:
            prepare_step(pair.step, job, techniques, self._elastic.divisor)
        self.pairs.append(pair)
        if pair.acting:
            self._updates.start()
        return pair

    def model(self, model: nn.Module, *, find_unused_parameters: bool) -> nn.Module:
        """Return the model as it trains on all workers."""
        pair = self._pair_for(model.parameters(), "model")
        if self._search.is_on():
            pair.model = AutoModel(
                model,
                lambda batch: self._decide(pair, model, batch),
                is_served=pair.job.servers is not None,
            )
            return pair.model
        pair.model = wrap(model, pair.job, pair.step, find_unused_parameters)
        pair.parameters.update(map(id, pair.model.parameters()))  # they may be new ones
        if self._elastic is not None:
            pair.model.forward = self._elastic.before(pair.model.forward)  # type: ignore[method-assign]
        self._announce(pair)
        return pair.model

    def optimizer(self, optimizer: torch.optim.Optimizer) -> DistributedOptimizer:
        """Return the optimizer as it trains on all workers."""
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        pair = self._pair_for(parameters, "optimizer")
        if self._search.is_on():
            pair.step.take_optimizer(optimizer)  # until the techniques are known
            pair.optimizer = self._distributed(pair)
            return pair.optimizer
        compose_update(pair.step, pair.techniques, optimizer)
        pair.optimizer = self._distributed(pair)
        self._announce(pair)
        return pair.optimizer

    def _distributed(self, pair: Pair) -> DistributedOptimizer:
        def find_watches() -> list[GradientWatch]:
            return _find_watches(pair.step, [p.model for p in self.pairs if p.model is not None])

        return DistributedOptimizer(pair.step, find_watches)

    def _decide(self, pair: Pair, model: nn.Module, batch: Batch) -> LooksLikeItsModule:
        """Find the best strategy with the first batch; return the model that uses it."""
        if pair.optimizer is None:
            raise RuntimeError(
                "strategy.auto measures whole steps: call fleet.distributed_optimizer before the "
                "first forward pass."
            )
        optimizer = pair.step.update
        self._search.run(model, optimizer, batch)
        pair.job, pair.techniques = self._choose()
        pair.step = compose_step(pair.techniques)
        if pair.acting:
            self._updates.start()
        wrapped = wrap(model, pair.job, pair.step, pair.job.strategy.find_unused_parameters)
        pair.parameters.update(map(id, wrapped.parameters()))  # they may be new ones
        compose_update(pair.step, pair.techniques, optimizer)
        pair.optimizer.take_step(pair.step)
        self._announce(pair)
        return wrapped

    def has_models_with(self, job: Job) -> bool:
        """Return whether every model so far was made with the strategy of this job."""
        return all(pair.job.strategy == job.strategy for pair in self.pairs if pair.model)

    def _announce(self, pair: Pair) -> None:
        if pair.optimizer is not None:
            explanation = _explained(pair)
            observe_step(pair.step, pair.model, explanation)
            if pair.model is not None:
                announce(explanation, pair.job.rank)
                if pair.step.activations is not None:
                    pair.step.activations.until_known(lambda: describe(_explained(pair)))
                self._train_elastically(pair, pair.model, pair.optimizer)

    def _train_elastically(
        self, pair: Pair, model: LooksLikeItsModule, optimizer: DistributedOptimizer
    ) -> None:
        if self._elastic is not None:
            card = [what_is_trained(model.module), how_it_is_trained(pair.step.update)]
            card.append(what_was_asked("fleet.init", pair.job.strategy))
            state = partial(TrainingState, model.module, optimizer)
            self._elastic.train(state, pair.step, card)

    def explanation(self) -> Explanation:
        """Return the composed step of the last model and optimizer."""
        complete = [p for p in self.pairs if p.optimizer is not None]
        if not complete:
            raise RuntimeError(
                "there is no step to explain yet: call fleet.distributed_model and "
                "fleet.distributed_optimizer, or minimize of a program, first."
            )
        complete[-1].step.count_activations()
        return _explained(complete[-1])


def _explained(pair: Pair) -> Explanation:
    buffers = [] if pair.model is None else pair.model.buffers()
    sizes = module_sizes(pair.step.parameters.values(), buffers)
    found = explain(pair.job, pair.techniques, sizes, type(pair.step.update).__name__)
    return replace(found, held=held_by(pair.step, pair.techniques, sizes))


def _find_watches(step: TrainStep, models: list[LooksLikeItsModule]) -> list[GradientWatch]:
    """Return the gradient checks of the models that an optimizer trains.

    Raises RuntimeError if a parameter is in none: with several workers it would not be exchanged.
    """
    if not world.is_connected():
        return []
    trained = {id(p): name for name, p in step.parameters.items() if p.requires_grad}
    mine = []
    for model in models:
        held = {id(p) for p in model.taken}
        if held & set(trained):
            mine.append(model)
            trained = {key: name for key, name in trained.items() if key not in held}
    if trained and mine:
        raise RuntimeError(
            f"parameter {next(iter(trained.values()))!r} was not in the model when "
            "fleet.distributed_model was called, so workers do not exchange it: change the model "
            "before that call."
        )
    if trained:
        raise RuntimeError(
            "the optimizer's parameters are in no model that fleet.distributed_model has "
            f"returned, so the {world.world_size()} workers would train independently: call model "
            "= fleet.distributed_model(model), also instead of DistributedDataParallel."
        )
    return [model.gradient_watch for model in mine if model.gradient_watch is not None]
