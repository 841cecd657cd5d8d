"""`auto` for PyTorch modules: the strategy is chosen at the first batch.

Until then the model stays as the script created it. The first forward pass in training mode tries
every candidate on copies of model and optimizer with this batch; the loss of a trial is the mean of
the model's outputs, unless `train_batch` knows the script's. In a job with parameter servers, a
trial is a forward and backward pass with temporary rows. Afterwards all state, including random
numbers, is restored; only the choice remains.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import nn

from fleetx.fleet.collective.auto_batch import Batch
from fleetx.fleet.collective.auto_facts import gather
from fleetx.fleet.collective.auto_layouts import Layouts, drop_too_large, find_layouts
from fleetx.fleet.collective.auto_measuring import CandidateTrainer
from fleetx.fleet.collective.distributed_model import LooksLikeItsModule
from fleetx.fleet.collective.gradient_watch import GradientWatch
from fleetx.step.compose import choose
from fleetx.step.technique import Job
from fleetx.step.train_step import Batches
from fleetx.techniques.auto import decide
from fleetx.techniques.auto_candidates import AutoConfig, Candidate
from fleetx.techniques.auto_trials import Trial
from fleetx.techniques.tensors_inside import all_tensors


class AutoModel(LooksLikeItsModule):
    """A model that becomes a distributed one at its first training step."""

    def __init__(
        self,
        module: nn.Module,
        decide: Callable[[Batch], LooksLikeItsModule],
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
            self._keep(_chosen=self._decide(Batch(args=args, kwargs=kwargs)))
        return self._chosen(*args, **kwargs)

    def meet_batch(self, inputs: Any, targets: Any, loss_fn: Callable[..., Any]) -> None:
        """Choose the strategy before the first whole batch, which a pipeline can train on too."""
        if self._chosen is None:
            batch = Batch(args=(inputs,), targets=targets, loss_fn=loss_fn)
            self._keep(_chosen=self._decide(batch))

    def no_sync(self) -> AbstractContextManager[Any]:
        """Keep the gradients of forward passes in this context on this worker."""
        return super().no_sync() if self._chosen is None else self._chosen.no_sync()

    # Once the strategy is chosen, a worker may have a part of the model.
    @property
    def gradient_watch(self) -> GradientWatch | None:
        """The watch over the gradients, once the strategy is chosen."""
        return None if self._chosen is None else self._chosen.gradient_watch

    @property
    def taken(self) -> list[nn.Parameter]:
        """The parameters that workers exchange."""
        return super().taken if self._chosen is None else self._chosen.taken

    @property
    def batches(self) -> Batches | None:
        """The runner of whole batches, if a pipeline is chosen."""
        return None if self._chosen is None else self._chosen.batches

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """Return the state of the user's module, under its own names."""
        if self._chosen is None:
            return super().state_dict(*args, **kwargs)
        return self._chosen.state_dict(*args, **kwargs)

    def load_state_dict(
        self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False
    ) -> Any:
        """Load a state of the user's module."""
        if self._chosen is None:
            return super().load_state_dict(state_dict, strict, assign)
        return self._chosen.load_state_dict(state_dict, strict, assign)


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
    ) -> None:
        self.is_on, self._job, self._adopt = is_on, job, adopt

    def run(self, model: nn.Module, optimizer: torch.optim.Optimizer, batch: Batch) -> None:
        """Choose by measuring, or load the stored choice, and pass it to the session."""
        own = self._job(None)
        strategy = own.strategy
        device = next((p.device for p in model.parameters()), torch.device("cpu"))
        facts = gather(
            own,
            machines=own.machines,
            device=device,
            layers=[type(module).__name__ for module in model.modules()],
            parameters=[(n, p.shape, str(p.dtype)) for n, p in model.named_parameters()],
            optimizer=optimizer,
            batch=", ".join(
                f"{t.dtype}{list(t.shape)}" for t in all_tensors((batch.args, batch.kwargs))
            ),
        )
        layouts = self._layouts(model, optimizer, batch, own)

        def check(candidate: Candidate) -> None:
            for technique in choose(self._job(candidate.applied_to(strategy)))[1]:
                technique.check_optimizer(optimizer)

        def measure(candidate: Candidate, config: AutoConfig) -> Trial:
            job = self._job(candidate.applied_to(strategy))
            trial = Trial(candidate=candidate, samples=batch.samples * own.workers)
            one = CandidateTrainer(job, layouts, batch, device, config)
            return one.measure(trial, *copy.deepcopy((model, optimizer)))

        more, left_out = ((), ()) if layouts is None else (layouts.choices, layouts.left_out)
        self._adopt(decide(strategy, facts, measure, check, own, more=more, left_out=left_out))

    def _layouts(
        self, model: nn.Module, optimizer: torch.optim.Optimizer, batch: Batch, own: Job
    ) -> Layouts | None:
        """Return the ways to divide the model; None if nothing limits the memory of a worker."""
        config = AutoConfig.read(own.strategy.auto_configs)
        if not config.worker_memory_mb or own.servers is not None:
            return None
        found = find_layouts(model, batch, own)

        def job(settings: dict[str, Any]) -> Job:
            return self._job(Candidate("", settings).applied_to(own.strategy))

        drop_too_large(found, config.worker_memory_mb * 1e6, job, optimizer)
        return found
