"""auto: find the fastest strategy for this model on this cluster by measuring.

Each candidate (`auto_candidates`) is tried for a few real steps on copies, all workers together
(`auto_trials`); those that need more memory than there is, or that this CPU cannot run, are
dropped; the fastest is taken and may be remembered in a file (`auto_choice`).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

from fleetx.runtime.cpu_isa import half_precision_fails
from fleetx.step.technique import Job
from fleetx.techniques.auto_candidates import AutoConfig, Candidate, Facts, Way, candidates
from fleetx.techniques.auto_choice import recall, remember
from fleetx.techniques.auto_trials import Trial, best, most, nothing_fits, table
from fleetx.techniques.random_state import random_state_kept


def search(
    found: Sequence[Candidate],
    measure: Callable[[Candidate], Trial],
    config: AutoConfig,
    job: Job,
) -> list[Trial]:
    """Try candidates until the time is up; workers that wait for each other stop after the same."""
    start = time.monotonic()
    trials: list[Trial] = []
    for candidate in found:
        over = time.monotonic() - start > config.time_limit
        if trials and most(job, float(over)) > 0:
            trials.append(Trial(candidate=candidate, note="not tried: the time was up"))
            continue
        try:
            trial = measure(candidate)
        except ValueError as error:  # refused before anything was sent, alike on all workers
            trials.append(Trial(candidate=candidate, note=f"refused: {error}"))
            continue
        seconds = None if trial.seconds is None else most(job, trial.seconds)
        memory = None if trial.memory is None else most(job, trial.memory)
        trial = replace(trial, seconds=seconds, memory=memory)
        if config.memory_limit_mb and (memory or 0.0) > config.memory_limit_mb * 1e6:
            trial = replace(trial, seconds=None, note="needs more memory than memory_limit_mb")
        trials.append(trial)
    return trials


def decide(
    strategy: Any,
    facts: Facts,
    measure: Callable[[Candidate, AutoConfig], Trial],
    check: Callable[[Candidate], None],
    job: Job,
    *,
    more: Sequence[Sequence[Way]] = (),
    left_out: Sequence[Trial] = (),
) -> Any:
    """Return the strategy to train with: remembered, or found by measuring candidates.

    `check` raises ValueError for a candidate whose techniques do not go together, or not with the
    optimizer. `more` are choices besides those of techniques, `left_out` is what is not tried and
    why, for the table. Workers of `job` that wait for each other in a step choose alike; a worker
    of asynchronous training, which waits for none, chooses for itself.
    """
    config = AutoConfig.read(strategy.auto_configs)
    found = candidates(strategy, config, facts, more)
    half_fails = cache(
        lambda: _half_fails(facts.device, job)
    )  # asked of all workers at the same place

    def tried(candidate: Candidate) -> Trial:
        if _adds_half_precision(candidate) and half_fails():
            return Trial(candidate=candidate, note=half_fails())
        return measure(candidate, config)

    def checked(candidate: Candidate) -> None:
        if _adds_half_precision(candidate) and half_fails():
            raise ValueError(half_fails())
        check(candidate)

    kept = recall(config, facts, found, checked, job)
    if kept is None:
        with random_state_kept():
            trials = [*search(found, tried, config, job), *left_out]
        chosen = best(trials)
        if job.rank == 0:
            print(table(trials, chosen), file=sys.stderr, flush=True)
        if chosen is None:
            raise RuntimeError(nothing_fits(trials, config))
        if job.rank == 0:
            remember(config, facts, trials, chosen)
        kept = chosen.candidate
    return kept.applied_to(strategy)


def _adds_half_precision(candidate: Candidate) -> bool:
    return bool(candidate.changes.get("amp"))


def _half_fails(device: str, job: Job) -> str:
    """Return why half precision cannot run on some worker's CPU, "" if it can on all.

    Of all that a candidate may add, only products and convolutions in half precision use
    instructions that the script's own steps do not: only they can end a process that trains
    without them. So these are tried in a process of its own, and only on CPUs that are known to
    advertise more than they carry; the outcome is remembered for the machine. Running every
    candidate in a child first would cost an import of torch each (seconds, and a copy of the
    model), and a forked child cannot run backward once its parent has.
    """
    own = half_precision_fails() if device == "cpu" else ""
    if not most(job, float(bool(own))):
        return ""
    return f"bfloat16 cannot run here: {own or 'it ends another worker'}"
