"""`auto` for PyTorch modules: the strategy is chosen at the first batch.

Until then the model stays as the script created it. The first forward pass in training mode tries
every candidate on copies of model and optimizer with this batch; the loss of a trial is the mean of
the model's outputs, because the script's loss is not known yet. In a job with parameter servers, a
trial is a forward and backward pass with temporary rows. Afterwards all state, including random
numbers, is restored; only the choice remains.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from fleetx.fleet.collective.auto_facts import gather
from fleetx.fleet.collective.distributed_model import LooksLikeItsModule
from fleetx.fleet.collective.explain import explain, module_sizes
from fleetx.fleet.collective.gradient_watch import GradientWatch
from fleetx.fleet.collective.wrapping import wrap
from fleetx.step.compose import choose, compose_step, compose_update
from fleetx.step.technique import Job
from fleetx.step.text_table import size
from fleetx.techniques.auto import decide
from fleetx.techniques.auto_candidates import AutoConfig, Candidate
from fleetx.techniques.auto_trials import Trial, fits, most, steps_to_measure, timed
from fleetx.techniques.served_tables import row_modules
from fleetx.techniques.sharding_state import state_copies
from fleetx.techniques.tensors_inside import map_tensors

Batch = tuple[tuple[Any, ...], dict[str, Any]]


class AutoModel(LooksLikeItsModule):
    """A model that becomes a distributed one at its first training step."""

    def __init__(
        self,
        module: nn.Module,
        decide: Callable[..., LooksLikeItsModule],
        *,
        is_served: bool,
    ) -> None:
        """`is_served`: the parameters are on servers, and not in the module yet."""
        super().__init__(module)
        self._keep(_decide=decide, _chosen=None, _is_served=is_served)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Run the model; choose the strategy before the first run in training mode."""
        if self._chosen is None:
            if not (self.training and torch.is_grad_enabled()):
                if self._is_served:
                    raise RuntimeError(
                        "strategy.auto decides in the first training step, and only then the model "
                        "gets its values from the parameter servers: train a step before the "
                        "model is evaluated, or switch off auto."
                    )
                return self.module(*args, **kwargs)
            self._keep(_chosen=self._decide(args, kwargs))
        return self._chosen(*args, **kwargs)

    def no_sync(self) -> AbstractContextManager[Any]:
        """Keep the gradients of forward passes in this context on this worker."""
        return super().no_sync() if self._chosen is None else self._chosen.no_sync()

    @property
    def gradient_watch(self) -> GradientWatch | None:
        """The watch over the gradients, once the strategy is chosen."""
        return None if self._chosen is None else self._chosen.gradient_watch


class ModelSearch:
    """Tries strategies on copies of a model.

    `is_on` returns whether the session searches, `job` returns the job of a strategy (the session's
    own if None), `adopt` makes the session use a strategy.
    """

    def __init__(
        self,
        is_on: Callable[[], bool],
        job: Callable[[Any], Job],
        adopt: Callable[[Any], None],
        machines: Callable[[], int],
    ) -> None:
        self.is_on, self._job, self._adopt, self._machines = is_on, job, adopt, machines

    def run(self, model: nn.Module, optimizer: torch.optim.Optimizer, batch: Batch) -> None:
        """Choose by measuring, or load the stored choice, and pass it to the session."""
        own = self._job(None)
        strategy = own.strategy
        device = next((p.device for p in model.parameters()), torch.device("cpu"))
        facts = gather(
            own,
            machines=self._machines(),
            device=device,
            layers=[type(module).__name__ for module in model.modules()],
            parameters=[(n, p.shape, str(p.dtype)) for n, p in model.named_parameters()],
            optimizer=optimizer,
            batch=", ".join(f"{t.dtype}{list(t.shape)}" for t in _tensors(batch)),
        )

        def check(candidate: Candidate) -> None:
            for technique in choose(self._job(candidate.applied_to(strategy)))[1]:
                technique.check_optimizer(optimizer)

        def measure(candidate: Candidate, config: AutoConfig) -> Trial:
            job = self._job(candidate.applied_to(strategy))
            trial = Trial(candidate=candidate, samples=_samples(batch) * own.workers)
            return _measure(trial, job, *copy.deepcopy((model, optimizer)), batch, device, config)

        self._adopt(decide(strategy, facts, measure, check, own))


def _measure(
    trial: Trial,
    job: Job,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    batch: Batch,
    device: torch.device,
    config: AutoConfig,
) -> Trial:
    """Train copies for some steps with one candidate."""
    job, techniques = choose(job)
    step = compose_step(techniques)
    for technique in techniques:
        technique.check_optimizer(optimizer)
    if job.servers is None:
        compose_update(step, techniques, optimizer)
    sizes = module_sizes(model.parameters(), model.buffers())
    explained = explain(job, techniques, sizes, "")
    trial = replace(trial, bytes_sent=explained.bytes_sent)

    prepared = cache(lambda: step.precision.wrap_forward(step.memory.prepare(model).forward))

    def alone() -> None:
        loss = _loss(prepared()(*batch[0], **batch[1]))
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.zero_grad()
        for module in row_modules(model):
            module.forget_gradients()

    trial = fits(trial, alone, device, job)
    if trial.note:
        return trial
    if job.servers is not None:
        return timed(trial, alone, config.steps, job)
    divided = {technique.name for technique in techniques if technique.divides}
    saved = sum(row.memory or 0.0 for row in explained.rows if row.technique in divided)
    kept = sizes.parameter_bytes * (1.0 + state_copies(optimizer))  # gradients are in `memory`
    held = most(job, kept + saved + (trial.memory or float(sizes.parameter_bytes)))
    if config.worker_memory_mb and held > config.worker_memory_mb * 1e6:
        note = f"a worker would hold {size(held)}, more than worker_memory_mb"
        return replace(trial, note=note)
    wrapped = wrap(model, job, step, job.strategy.find_unused_parameters)

    def train() -> None:
        loss = _loss(wrapped(*batch[0], **batch[1]))
        step.precision.scaled(loss).backward()  # type: ignore[no-untyped-call]
        step.run(loss.detach())
        optimizer.zero_grad()

    return timed(trial, train, steps_to_measure(config, job.strategy), job)


def _tensors(value: Any) -> list[Tensor]:
    found: list[Tensor] = []

    def note(tensor: Tensor) -> Tensor:
        found.append(tensor)
        return tensor

    map_tensors(value, note)
    return found


def _loss(outputs: Any) -> Tensor:
    """Return a scalar that depends on all outputs of the model."""
    parts = [t.float().mean() for t in _tensors(outputs) if t.requires_grad]
    if not parts:
        raise ValueError("the model returns nothing that can be trained, so auto cannot try it.")
    return torch.stack(parts).sum()


def _samples(batch: Batch) -> int:
    args, kwargs = batch
    for value in [*args, *kwargs.values()]:
        if isinstance(value, Tensor) and value.dim():
            return int(value.shape[0])
    return 1
