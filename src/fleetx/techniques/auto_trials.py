"""Trials of `auto`: how a candidate is measured, all workers together, and which one is taken."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import torch

from fleetx.comm.device import gpu_count
from fleetx.step.registry import known
from fleetx.step.technique import Job
from fleetx.step.text_table import draw, size
from fleetx.techniques.auto_candidates import AutoConfig, Candidate
from fleetx.techniques.peak_memory import PeakMemory

_WORTH = 1.05
"""A candidate must be this much faster than a simpler one: less is noise."""


@dataclass(frozen=True, kw_only=True)
class Trial:
    """What became of a candidate."""

    candidate: Candidate
    seconds: float | None = None
    """Per step; None if it was not run to the end."""
    samples: int = 0
    """In a step, over all workers."""
    bytes_sent: float | None = None
    """By a worker in a step; None if it was not composed."""
    memory: float | None = None
    """Bytes that a step needed beyond what was there; None where it cannot be measured."""
    held: float | None = None
    """Bytes that a worker would hold in all, if they are limited."""
    note: str = ""


def period(strategy: Any) -> int:
    """Return after how many steps of a strategy what it sends and updates repeats."""
    job = Job(strategy=strategy)
    return prod(technique(job).cycle() for technique in known() if technique.is_on(strategy))


def fits(trial: Trial, work: Callable[[], Any], device: torch.device, job: Job) -> Trial:
    """Return the trial with the memory that a piece of work needs, or a note that there is none.

    The work must not exchange anything: a worker that runs out of memory blocks no other.
    """
    watch = PeakMemory(device)
    watch.start()
    is_too_much = False
    try:
        work()
    except (torch.OutOfMemoryError, MemoryError):
        is_too_much = True
    memory = watch.stop()
    if most(job, float(is_too_much)):
        return replace(trial, note="does not fit in memory")
    return replace(trial, memory=memory)


def timed(trial: Trial, train: Callable[[], Any], steps: int, job: Job) -> Trial:
    """Return the trial with the time of a step, after two steps that are not counted."""
    train()
    train()
    job.gather(0)  # start together
    start = time.perf_counter()
    for _ in range(steps):
        train()
    torch.get_device_module("cuda" if gpu_count() else "cpu").synchronize()
    job.gather(0)
    return replace(trial, seconds=(time.perf_counter() - start) / steps)


def steps_to_measure(config: AutoConfig, strategy: Any) -> int:
    """Return how many steps show what a strategy costs: whole periods of it, at least as asked."""
    whole = period(strategy)
    return -(-config.steps // whole) * whole


def most(job: Job, value: float) -> float:
    """Return the largest value of the workers that wait for each other, the same on all."""
    return max(job.gather(value))


def best(trials: Sequence[Trial]) -> Trial | None:
    """Return the fastest trial, or None if none was run to the end; a simpler one wins unless the
    other is clearly faster."""
    chosen: Trial | None = None
    for trial in trials:
        if trial.seconds is None:
            continue
        if chosen is None or chosen.seconds is None or chosen.seconds > trial.seconds * _WORTH:
            chosen = trial
    return chosen


def nothing_fits(trials: Sequence[Trial], config: AutoConfig) -> str:
    """Return the sentence for a search without a result: how much the smallest candidate needs, or
    why each of a few was not run."""
    limited = [t for t in trials if t.held is not None]
    if config.worker_memory_mb and limited:
        least = min(limited, key=lambda t: t.held or 0.0)
        return (
            f"auto_configs['worker_memory_mb'] is {config.worker_memory_mb:g}, and auto found no "
            f"strategy with which this model fits: {least.candidate.name!r} needs the least, "
            f"{size(least.held or 0.0)} per worker; raise the limit, start more workers or take "
            "smaller batches."
        )
    reasons = "; ".join(f"{t.candidate.name}: {t.note}" for t in trials[:5])
    more = f"; and {len(trials) - 5} more" if len(trials) > 5 else ""
    return (
        f"auto found no strategy that trains this model here ({reasons}{more}): give it more "
        "memory, or recompute_configs['checkpoints'] so that recompute can be tried."
    )


def table(trials: Sequence[Trial], chosen: Trial | None) -> str:
    """Return what was tried, as a table."""
    rows = []
    for trial in trials:
        rate = "-" if not trial.seconds else f"{trial.samples / trial.seconds:.1f}"
        memory = "-" if trial.memory is None else f"{trial.memory / 1e6:.1f}"
        sent = "-" if trial.bytes_sent is None else f"{trial.bytes_sent / 1e6:.2f}"
        note = "; ".join(filter(None, ["taken" if trial is chosen else "", trial.note]))
        rows.append((trial.candidate.name, rate, sent, memory, note))
    headings = ("strategy", "samples/s", "MB sent/step", "MB memory", "")
    return draw("auto: strategies that were tried", headings, rows, right=headings[1:4])
