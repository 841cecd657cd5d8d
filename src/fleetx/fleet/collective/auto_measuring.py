"""One trial of `auto` for PyTorch modules: a candidate trains copies of model and optimizer.

Forward and backward of the whole model show first whether a worker has the memory, without an
exchange in which others would wait for one that has not. Where only several workers together can
run the model, the planner's figures take the place of that.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import torch
from torch import nn

from fleetx.fleet.collective.auto_batch import Batch
from fleetx.fleet.collective.auto_layouts import Layouts
from fleetx.fleet.collective.distributed_model import LooksLikeItsModule
from fleetx.fleet.collective.explain import explain, module_sizes
from fleetx.fleet.collective.wrapping import wrap
from fleetx.step.compose import choose, compose_step, compose_update
from fleetx.step.technique import Job, Sizes
from fleetx.step.text_table import size
from fleetx.step.train_step import TrainStep
from fleetx.techniques.auto_candidates import AutoConfig
from fleetx.techniques.auto_trials import Trial, fits, most, steps_to_measure, timed
from fleetx.techniques.served_tables import row_modules

_PREDICTED = "memory as predicted"


class CandidateTrainer:
    """Trains copies of model and optimizer for some steps with one candidate."""

    def __init__(
        self,
        job: Job,
        layouts: Layouts | None,
        batch: Batch,
        device: torch.device,
        config: AutoConfig,
    ) -> None:
        self._job, self._techniques = choose(job)
        self._layouts, self._batch, self._device, self._config = layouts, batch, device, config
        degrees = self._job.layout.degrees
        self._computes_together = degrees.mp * degrees.pp > 1

    def measure(self, trial: Trial, model: nn.Module, optimizer: torch.optim.Optimizer) -> Trial:
        """Return the trial with the time of a step, or with a note why it was not run."""
        job, config = self._job, self._config
        step = compose_step(self._techniques)
        for technique in self._techniques:
            technique.check_optimizer(optimizer)
        if job.servers is None:
            compose_update(step, self._techniques, optimizer)
        sizes = module_sizes(model.parameters(), model.buffers())
        trial = replace(trial, bytes_sent=self._bytes_sent(sizes))
        if not self._computes_together:
            alone = self._alone(step, model, optimizer)
            trial = fits(trial, alone, self._device, job)
            if trial.note:
                return trial
            if job.servers is not None:
                return timed(trial, alone, config.steps, job)
        trial = self._limited(trial, sizes, optimizer)
        if trial.note:
            return trial
        wrapped = wrap(model, job, step, job.strategy.find_unused_parameters)
        train = self._training(step, wrapped, optimizer)
        trial = timed(trial, train, steps_to_measure(config, job.strategy), job)
        return replace(trial, note=_PREDICTED) if self._computes_together else trial

    def _bytes_sent(self, sizes: Sizes) -> float:
        found = explain(self._job, self._techniques, sizes, "").bytes_sent
        if self._computes_together and self._layouts is not None:
            found += self._layouts.activations_sent(self._job)
        return found

    def _alone(
        self, step: TrainStep, model: nn.Module, optimizer: torch.optim.Optimizer
    ) -> Callable[[], None]:
        """Return forward and backward of the whole model on this worker, without an exchange."""
        prepared = cache(lambda: step.precision.wrap_forward(step.memory.prepare(model).forward))

        def alone() -> None:
            self._batch.loss(prepared()).backward()  # type: ignore[no-untyped-call]
            optimizer.zero_grad()
            for module in row_modules(model):
                module.forget_gradients()

        return alone

    def _limited(self, trial: Trial, sizes: Sizes, optimizer: torch.optim.Optimizer) -> Trial:
        """Return the trial with what a worker would hold, and with a note if that is too much.

        Activations are those that were measured; where only several workers together can run the
        model, those that it has without values.
        """
        if self._layouts is None:
            return trial
        memory = self._layouts.memory(self._job, optimizer)
        activations = memory.activations
        if trial.memory is not None:  # with all gradients
            activations = max(0.0, trial.memory - sizes.parameter_bytes)
        held = most(self._job, memory.total - memory.activations + activations)
        if self._computes_together:
            needed = memory.gradients + memory.activations + memory.gathered
            trial = replace(trial, memory=needed)
        if held > self._config.worker_memory_mb * 1e6:
            note = f"a worker would hold {size(held)}, more than worker_memory_mb"
            return replace(trial, held=held, note=note)
        return replace(trial, held=held)

    def _training(
        self, step: TrainStep, model: LooksLikeItsModule, optimizer: torch.optim.Optimizer
    ) -> Callable[[], None]:
        """Return a step of the distributed model."""
        batch = self._batch

        def train() -> None:
            if step.batches is None:
                loss = batch.loss(model)
                step.precision.scaled(loss).backward()  # type: ignore[no-untyped-call]
            else:
                assert batch.loss_fn is not None
                loss = step.batches.train(batch.args[0], batch.targets, batch.loss_fn)
            step.run(loss.detach())
            optimizer.zero_grad()

        return train
