"""auto: find the fastest strategy for this model on this cluster by measuring.

Candidates are combinations of switches on top of what the strategy already says. Each is tried for
a few real steps on copies, all workers together; those that need more memory than there is are
dropped; the fastest is taken and may be remembered in a file. Only what changes speed and memory is
tried, unless `auto_configs` allows techniques that change the mathematics.
"""

from __future__ import annotations

import copy
import io
import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import torch

from fleetx.checkpoint.atomic import write_bytes
from fleetx.comm import world
from fleetx.techniques.peak_memory import PeakMemory
from fleetx.techniques.random_state import random_state_kept

CHANGE_MATHEMATICS = ("localsgd", "adaptive_localsgd", "dgc", "lars", "lamb", "gradient_merge")
"""Techniques that are tried only if `auto_configs["techniques"]` names them."""

_WORTH = 1.05
"""A candidate must be this much faster than a simpler one: less is noise."""


@dataclass(frozen=True)
class Candidate:
    """Settings to change on the strategy; the name says which."""

    name: str
    changes: Mapping[str, Any]

    def applied_to(self, strategy: Any) -> Any:
        """Return a copy of the strategy with these settings, and without auto."""
        result = copy.deepcopy(strategy)
        result.auto = False
        for key, value in self.changes.items():
            setattr(result, key, value)
        return result


@dataclass(frozen=True, kw_only=True)
class Trial:
    """What became of a candidate."""

    candidate: Candidate
    seconds: float | None = None
    """Per step; None if it was not run to the end."""
    samples: int = 0
    """In a step, over all workers."""
    bytes_sent: float = 0.0
    memory: float | None = None
    """Bytes that a step needed beyond what was there; None where it cannot be measured."""
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What a choice depends on: it is taken over only by a job of which all of it is the same."""

    workers: int
    device: str
    parameters: int
    """Elements of all of them."""


@dataclass(frozen=True, kw_only=True)
class AutoConfig:
    """The settings of `auto_configs`."""

    steps: int = 5
    time_limit: float = 120.0
    memory_limit_mb: float = 0.0
    techniques: tuple[str, ...] = ()
    file: str = ""

    @classmethod
    def read(cls, settings: Mapping[str, Any]) -> AutoConfig:
        """Return the settings of a strategy."""
        found = cls(**{**settings, "techniques": tuple(settings["techniques"])})
        unknown = [name for name in found.techniques if name not in CHANGE_MATHEMATICS]
        if unknown:
            raise ValueError(
                f"auto_configs['techniques'] names {unknown[0]!r}; it may name "
                f"{', '.join(CHANGE_MATHEMATICS)}."
            )
        return found


def candidates(strategy: Any, config: AutoConfig, *, job: Facts, machines: int) -> list[Candidate]:
    """Return what to try, the plain strategy first, then by the number of changes."""
    workers = job.workers
    choices: list[list[tuple[str, dict[str, Any]]]] = []

    def choice(*options: tuple[str, dict[str, Any]]) -> None:
        choices.append([("", {}), *options])

    if not strategy.amp:
        half = [("amp bfloat16", {"amp": True, "amp_configs": {"use_pure_bf16": True}})]
        if job.device == "cuda":
            half.append(("amp float16", {"amp": True}))
        choice(*half)
    if not strategy.recompute and strategy.recompute_configs["checkpoints"]:
        choice(("recompute", {"recompute": True}))
    if workers > 1:
        if not strategy.fp16_allreduce:
            choice(("fp16_allreduce", {"fp16_allreduce": True}))
        if machines > 1 and workers > machines and not strategy.use_hierarchical_allreduce:
            group = {"hierarchical_allreduce_inter_nranks": workers // machines}
            choice(("hierarchical", {"use_hierarchical_allreduce": True, **group}))
        if job.parameters * 4 > 4e6 and not strategy.was_set("fuse_grad_size_in_MB"):
            choice(("buckets of 4 MB", {"fuse_grad_size_in_MB": 4}))
    if config.techniques:
        choice(*((name, {name: True}) for name in config.techniques))
    found = []
    for options in product(*choices):
        names = [name for name, _ in options if name]
        changes = {key: value for _, part in options for key, value in part.items()}
        found.append((len(names), Candidate(" + ".join(names) or "as it is", changes)))
    return [candidate for _, candidate in sorted(found, key=lambda item: item[0])]


def search(
    found: Sequence[Candidate], measure: Callable[[Candidate], Trial], config: AutoConfig
) -> list[Trial]:
    """Try candidates until the time is up; all workers stop after the same one."""
    start = time.monotonic()
    trials: list[Trial] = []
    for candidate in found:
        over = time.monotonic() - start > config.time_limit
        if trials and agreed_most(float(over)) > 0:
            trials.append(Trial(candidate=candidate, note="not tried: the time was up"))
            continue
        try:
            trial = measure(candidate)
        except ValueError as error:  # refused before anything was sent, alike on all workers
            trials.append(Trial(candidate=candidate, note=f"refused: {error}"))
            continue
        seconds = None if trial.seconds is None else agreed_most(trial.seconds)
        memory = None if trial.memory is None else agreed_most(trial.memory)
        trial = replace(trial, seconds=seconds, memory=memory)
        if config.memory_limit_mb and (memory or 0.0) > config.memory_limit_mb * 1e6:
            trial = replace(trial, seconds=None, note="needs more memory than memory_limit_mb")
        trials.append(trial)
    return trials


def decide(
    strategy: Any,
    facts: Facts,
    machines: int,
    measure: Callable[[Candidate, AutoConfig], Trial],
) -> Any:
    """Return the strategy to train with: remembered, or found by measuring candidates."""
    config = AutoConfig.read(strategy.auto_configs)
    kept = recall(config, facts)
    if kept is None:
        found = candidates(strategy, config, job=facts, machines=machines)
        with random_state_kept():
            trials = search(found, lambda candidate: measure(candidate, config), config)
        chosen = best(trials)
        if world.rank() == 0:
            print(table(trials, chosen), file=sys.stderr, flush=True)
        remember(config, facts, trials, chosen)
        kept = chosen.candidate
    return kept.applied_to(strategy)


def fits(trial: Trial, work: Callable[[], Any], device: torch.device) -> Trial:
    """Return the trial with the memory that a piece of work needs, or a note that there is none.

    The work must not exchange anything: a worker that runs out of memory leaves nobody waiting.
    """
    watch = PeakMemory(device)
    watch.start()
    is_too_much = False
    try:
        work()
    except (torch.OutOfMemoryError, MemoryError):
        is_too_much = True
    memory = watch.stop()
    if agreed_most(float(is_too_much)):
        return replace(trial, note="does not fit in memory")
    return replace(trial, memory=memory)


def timed(trial: Trial, train: Callable[[], Any], config: AutoConfig) -> Trial:
    """Return the trial with the time of a step, after two steps that are not counted."""
    train()
    train()
    world.barrier()
    start = time.perf_counter()
    for _ in range(config.steps):
        train()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    world.barrier()
    return replace(trial, seconds=(time.perf_counter() - start) / config.steps)


def agreed_most(value: float) -> float:
    """Return the largest value of all workers, the same on all of them."""
    return float(world.all_reduce(torch.tensor([value], dtype=torch.float64), "max").item())


def best(trials: Sequence[Trial]) -> Trial:
    """Return the fastest trial; a simpler one wins unless the other is clearly faster."""
    chosen: Trial | None = None
    for trial in trials:
        if trial.seconds is None:
            continue
        if chosen is None or chosen.seconds is None or chosen.seconds > trial.seconds * _WORTH:
            chosen = trial
    if chosen is None:
        reasons = "; ".join(f"{t.candidate.name}: {t.note}" for t in trials)
        raise RuntimeError(
            f"auto found no strategy that trains this model here ({reasons}): give it more memory, "
            "or recompute_configs['checkpoints'] so that recompute can be tried."
        )
    return chosen


def table(trials: Sequence[Trial], chosen: Trial) -> str:
    """Return what was tried, as a table."""
    from rich.console import Console
    from rich.table import Table

    result = Table(title="auto: strategies that were tried")
    for heading in ("strategy", "samples/s", "MB sent/step", "MB memory", ""):
        result.add_column(heading, justify="left" if heading in ("strategy", "") else "right")
    for trial in trials:
        rate = "-" if not trial.seconds else f"{trial.samples / trial.seconds:.1f}"
        memory = "-" if trial.memory is None else f"{trial.memory / 1e6:.1f}"
        note = "taken" if trial is chosen else trial.note
        result.add_row(trial.candidate.name, rate, f"{trial.bytes_sent / 1e6:.2f}", memory, note)
    buffer = io.StringIO()
    Console(file=buffer, width=110).print(result)
    return buffer.getvalue()


def recall(config: AutoConfig, facts: Facts) -> Candidate | None:
    """Return the choice that a file remembers for a job like this; None if there is none.

    Worker 0 reads it and tells the others, whether they reach the file or not.
    """
    if not config.file:
        return None
    text = ""
    if world.rank() == 0 and Path(config.file).is_file():
        text = Path(config.file).read_text()
    text = _from_first(text)
    if not text:
        return None
    try:
        kept = json.loads(text)
        known, changes, name = kept["job"], kept["changes"], kept["name"]
    except (json.JSONDecodeError, KeyError, TypeError) as error:
        raise ValueError(
            f"{config.file} is not a choice that auto has written ({error}): remove it, or name "
            "another file in auto_configs['file']."
        ) from error
    if known != asdict(facts):
        if world.rank() == 0:
            print(
                f"auto: {config.file} is of another job ({known}); measuring anew.",
                file=sys.stderr,
            )
        return None
    return Candidate(name, changes)


def remember(config: AutoConfig, facts: Facts, trials: Sequence[Trial], chosen: Trial) -> None:
    """Write the choice, and what was measured, to the file that the settings name."""
    if not config.file or world.rank() != 0:
        return
    tried = [
        {"name": t.candidate.name, "seconds": t.seconds, "bytes": t.bytes_sent, "note": t.note}
        for t in trials
    ]
    candidate = chosen.candidate
    kept = {
        "job": asdict(facts),
        "name": candidate.name,
        "changes": dict(candidate.changes),
        "tried": tried,
    }
    write_bytes(config.file, (json.dumps(kept, indent=1) + "\n").encode())


def _from_first(text: str) -> str:
    """Return worker 0's text."""
    data = text.encode()
    size = int(agreed_most(float(len(data)) if world.rank() == 0 else 0.0))
    if not size:
        return ""
    buffer = torch.zeros(size, dtype=torch.uint8)
    if world.rank() == 0:
        buffer = torch.frombuffer(bytearray(data), dtype=torch.uint8)
    return bytes(world.broadcast(buffer).tolist()).decode()
