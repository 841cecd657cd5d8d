"""Composing techniques: which are on, whether they can be combined, and in which order they apply.

Two techniques that replace the same stage are rejected before training starts, with an error that
names both, the stage and how to resolve it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import combinations
from typing import Any

from torch.optim import Optimizer

from fleetx.static.optimizer.wrapped_optimizer import WrappedOptimizer
from fleetx.step.program_step import ProgramStep
from fleetx.step.registry import known
from fleetx.step.slots import NoSuchSlot
from fleetx.step.stages import Stage
from fleetx.step.technique import Job, Technique
from fleetx.step.train_step import TrainStep


def choose(job: Job) -> tuple[Job, list[Technique[Any]]]:
    """Return the job with the all-reduce as techniques change it, and the techniques of its step in
    the order of composition: those that its strategy switches on, and those that follow from its
    processes.

    Raises ValueError if two cannot be combined or one cannot act.
    """
    chosen = [kind(job) for kind in known() if kind.acts_in(job)]
    for first, second in combinations(chosen, 2):
        reason = conflict(first, second)
        if reason is not None:
            raise ValueError(_refusal((first, second), reason))
    for technique in chosen:
        technique.check()
    for technique in chosen:  # all of them can act in this job
        _check_layout(job, technique)
    acting = [t for t in chosen if job.workers > 1 or not t.needs_workers]
    for technique in acting:
        job = replace(job, all_reduce=technique.change_messages(job.all_reduce))
    for technique in acting:
        technique.job = job
    return job, acting


def _check_layout(job: Job, technique: Technique[Any]) -> None:
    """Reject a technique that communicates between workers that divide one model."""
    exchanged = technique.replaces & {Stage.GRAD_SYNC, Stage.PARAM_SYNC}
    if job.layout.is_plain or technique.divides or not exchanged:
        return
    name = technique.name
    if job.copies < 2:
        raise ValueError(
            f"the strategy switches on {name}, which acts between copies of the model, but its "
            f"degrees divide one copy between all {job.workers} workers: set smaller degrees "
            "(sharding_configs['sharding_degree'], hybrid_configs), so that there are several "
            f"copies, or switch off {name}."
        )
    if not technique.between_copies:
        raise ValueError(
            f"the strategy switches on {name}, which exchanges whole gradients between all "
            "workers, but its degrees divide the model between them: use localsgd or dgc, which "
            f"can act between copies, or switch off {name}."
        )


def conflict(first: Technique[Any], second: Technique[Any]) -> str | None:
    """Return why two techniques cannot be combined, as a clause; None if they can."""
    shared = first.replaces & second.replaces - first.relocates - second.relocates
    if shared:
        stages = " and ".join(f"{stage}" for stage in sorted(shared))
        return f"both replace the step's {stages}"
    return first.refuses.get(second.name) or second.refuses.get(first.name)


def _refusal(pair: tuple[Technique[Any], Technique[Any]], reason: str) -> str:
    """Return the error message for two techniques: their origin, the reason, the way out."""
    names = [technique.name for technique in pair if not technique.because[0]]
    others = [technique.because for technique in pair if technique.because[0]]
    asked = " and ".join(
        [f"the strategy switches on {' and '.join(names)}", *(a for a, _ in others)]
    )
    ways = ", or ".join([f"switch off {' or '.join(names)}", *(way for _, way in others)])
    return f"{asked}, but {reason}: {ways}."


_STAGES = {"updater": Stage.UPDATE}
"""The stages of slots with another name."""


@contextmanager
def _changing(step: TrainStep | ProgramStep, technique: Technique[Any]) -> Iterator[None]:
    """Record the slots that a technique fills; reject those that do not exist or are taken, and
    stages that the step cannot run.
    """
    before = dict(vars(step))
    try:
        yield
    except NoSuchSlot as error:
        advice = error.step.advice(error.slot)
        if error.slot == "update":
            advice = "write change_update, which returns the optimizer."
        elif isinstance(error.step, ProgramStep) and error.slot in TrainStep().slots():
            advice = "write change_program for it, or train a module."
        raise TypeError(f"the technique {technique.name} uses {error}: {advice}") from error
    for slot in step.slots():
        stage, owner = getattr(step, slot), step.owner(slot)
        if stage is before[slot] or (stage is None and slot in ("clip", "guard")):
            continue
        if owner is not None and _STAGES.get(slot, slot) not in technique.wraps:
            raise ValueError(_refusal((owner, technique), f"both set step.{slot}"))
        taken = _taken_by(step, slot)
        if taken is not None:
            raise ValueError(
                f"the strategy switches on {technique.name}, but the optimizer is a {taken}, which "
                f"sets step.{slot} too: use one of the two."
            )
        needed = step.check(slot, stage)
        if needed is not None:
            raise TypeError(
                f"the technique {technique.name} put a {type(stage).__name__} into step.{slot} of "
                f"a program, where only {needed} can be: write change_program for it, or train a "
                "module."
            )
        if owner is None:  # otherwise it wraps the owner's stage
            step.set_owner(slot, technique)


def _taken_by(step: TrainStep | ProgramStep, slot: str) -> str | None:
    """Return the name of the script's program optimizer whose stage fills a slot."""
    optimizer = step.update if isinstance(step, ProgramStep) else None
    while isinstance(optimizer, WrappedOptimizer):
        if optimizer.slot == slot:
            return type(optimizer).__name__
        optimizer = optimizer.inner
    return None


def compose_step(techniques: Sequence[Technique[Any]]) -> TrainStep:
    """Return the step of a PyTorch module with these techniques; it has no optimizer yet."""
    step = TrainStep()
    for technique in techniques:
        with _changing(step, technique):
            technique.change_step(step)
    return step


def compose_update(
    step: TrainStep, techniques: Sequence[Technique[Any]], optimizer: Optimizer
) -> None:
    """Set the optimizer of a step: the user's, or the one that a technique replaces it with."""
    for technique in techniques:
        technique.check_optimizer(optimizer)
    for technique in techniques:
        with _changing(step, technique):
            optimizer = technique.change_update(step, optimizer)
    step.take_optimizer(optimizer)


def compose_program(step: ProgramStep, techniques: Sequence[Technique[Any]]) -> ProgramStep:
    """Apply techniques to the step of a program; return it."""
    for technique in techniques:
        technique.check_optimizer(step.update)
    for technique in techniques:
        with _changing(step, technique):
            technique.change_program(step)
    return step
