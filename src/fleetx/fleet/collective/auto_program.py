"""`auto` for programs: the strategy is chosen when the program is run for the first time."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from fleetx.fleet.collective.auto_facts import gather
from fleetx.fleet.collective.explain import announce
from fleetx.fleet.collective.program_writing import CollectivePrograms, write_step
from fleetx.fleet.servers.job import TrainingServers
from fleetx.fleet.servers.program_link import ServerLink
from fleetx.fleet.servers.trial_link import TrialLink
from fleetx.static import unique_name
from fleetx.static.graph.default_programs import program_guard
from fleetx.static.graph.program import Program
from fleetx.static.optimizer import Optimizer
from fleetx.static.run.scope import Scope
from fleetx.static.run.server_link import Servers
from fleetx.step.compose import choose
from fleetx.step.technique import Job
from fleetx.techniques.auto import decide
from fleetx.techniques.auto_candidates import AutoConfig, Candidate
from fleetx.techniques.auto_trials import Trial, fits, steps_to_measure, timed

if TYPE_CHECKING:
    from fleetx.fleet.session import Fleet


class ProgramSearch:
    """`auto` for programs: tries strategies when the program is run for the first time.

    Candidates are built from copies of the programs as they were before `minimize`, and run in
    scopes of their own with the first batch. With parameter servers, they read rows and push
    nothing. The chosen candidate replaces the program's ops; variables that it adds are
    initialised.
    """

    def __init__(
        self, fleet: Fleet, optimizer: Any, loss: Any, startup: Program, more: dict[str, Any]
    ) -> None:
        if not isinstance(optimizer, Optimizer):
            raise ValueError(
                "strategy.auto composes techniques around a plain optimizer, but it got a "
                f"{type(optimizer).__name__}: give it the optimizer inside, or switch off auto."
            )
        self._fleet, self._more = fleet, more
        self._loss = loss.name
        self._main, self._startup = loss.block.program.clone(), startup.clone()
        self._optimizer = copy.copy(optimizer)
        # New ops get the names they would have had without a search.
        numbering = unique_name.switch()
        unique_name.switch(numbering)
        self._names = copy.deepcopy(numbering)

    def _built(self, job: Job, link: Callable[[ServerLink], Servers]) -> CollectivePrograms:
        """Return the programs of a candidate; `link` returns their connection to the servers."""
        if isinstance(job.servers, TrainingServers):
            job = replace(job, servers=replace(job.servers, link=link))
        main, startup = self._main.clone(), self._startup.clone()
        with program_guard(main, startup), unique_name.guard(copy.deepcopy(self._names)):
            optimizer = self._optimizer.for_program(main)
            loss = main.global_block().var(self._loss)
            job, techniques = choose(job)
            return write_step(optimizer, loss, startup, job, techniques, **self._more)[1]

    def decide(self, executor: Any, program: Program, feed: Any, scope: Scope) -> None:
        """Find the best strategy with the first batch and apply it to the program."""
        program.binding.first_run = None
        fleet = self._fleet
        own = fleet._job()
        strategy = own.strategy
        facts = gather(
            own,
            machines=fleet.node_num(),
            device=executor.place.device(),
            layers=[op.type for block in self._main.blocks for op in block.ops],
            parameters=[(p.name, p.shape, str(p.dtype)) for p in self._main.all_parameters()],
            optimizer=self._optimizer,
            batch=", ".join(f"{name} {_shape(feed[name])}" for name in sorted(feed)),
        )
        samples = max(map(_rows, feed.values()), default=1)

        def check(candidate: Candidate) -> None:
            for technique in choose(fleet._job(candidate.applied_to(strategy)))[1]:
                technique.check_optimizer(self._optimizer)

        def measure(candidate: Candidate, config: AutoConfig) -> Trial:
            if config.worker_memory_mb:
                raise RuntimeError(
                    f"auto_configs['worker_memory_mb'] is {config.worker_memory_mb:g}, which auto "
                    "can follow for modules but not for programs: set memory_limit_mb, or train "
                    "a torch.nn.Module."
                )
            followed = candidate.applied_to(strategy)
            built = self._built(fleet._job(followed), TrialLink)
            trial = Trial(
                candidate=candidate,
                samples=samples * own.workers,
                bytes_sent=built.explanation.bytes_sent,
            )
            inner = Scope()
            executor.run(built.startup, scope=inner)
            for name in inner.local_var_names():
                found = scope.find_var(name)
                if found is not None and isinstance(found.value, torch.Tensor):
                    inner.var(name).value = found.value.clone()

            def run(one: Program) -> None:
                executor.run(one, feed=feed, scope=inner)

            alone = built.origin if own.servers is None else built.main
            trial = fits(trial, lambda: run(alone), executor.place.device(), own)
            if trial.note:
                return trial
            steps = steps_to_measure(config, followed)
            return timed(trial, lambda: run(built.main), steps, own)

        fleet._adopt(decide(strategy, facts, measure, check, own))
        job, _ = fleet._choose(self._optimizer)
        chosen = self._built(job, lambda link: link)
        announce(chosen.explanation, job.rank)
        fresh = Scope()
        executor.run(chosen.startup, scope=fresh)
        for name in fresh.local_var_names():
            found = scope.find_var(name)
            if found is None or not found.is_initialized():
                scope.var(name).value = fresh.var(name).value
        program.take_over(chosen.main)
        fleet._collective = replace(chosen, main=program)


def _rows(value: Any) -> int:
    """Return the number of samples in a fed value; tensors of a loader have a method for it."""
    shape = _shape(value)
    return shape[0] if shape else 1


def _shape(value: Any) -> list[int]:
    return list(value.shape() if callable(getattr(value, "shape", None)) else np.shape(value))
