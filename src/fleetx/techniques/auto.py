"""auto: find the fastest strategy for this model on this cluster by measuring.

Candidates are combinations of switches on top of what the strategy already says. Each is tried for
a few real steps on copies, all workers together; those that need more memory than there is, or that
this CPU cannot run, are dropped; the fastest is taken and may be remembered in a file. Only what
changes speed and memory is tried, unless `auto_configs` allows techniques that change the
mathematics.
"""

from __future__ import annotations

import copy
import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from functools import cache
from itertools import product
from math import prod
from pathlib import Path
from typing import Any

import torch

from fleetx.checkpoint.atomic import write_bytes
from fleetx.comm import world
from fleetx.comm.device import gpu_count
from fleetx.runtime.cpu_isa import half_precision_fails
from fleetx.step.registry import known
from fleetx.step.settings import read, setting
from fleetx.step.technique import Job
from fleetx.step.text_table import draw
from fleetx.techniques.peak_memory import PeakMemory
from fleetx.techniques.random_state import random_state_kept

_FORMAT = 2

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


def period(strategy: Any) -> int:
    """Return after how many steps of a strategy what it sends and updates repeats."""
    job = Job(strategy=strategy)
    return prod(technique(job).cycle() for technique in known() if technique.is_on(strategy))


def changing_mathematics() -> list[str]:
    """Return the techniques that are tried only if `auto_configs["techniques"]` names them."""
    return [t.name for t in known() if not (t.keeps_mathematics or t.switch)]


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
    """What a choice depends on: it is reused only if all of this is identical."""

    workers: int
    device: str
    parameters: int
    """Elements of all of them."""
    machines: int = 1
    hardware: str = ""
    model: str = ""
    """A digest of its layers and of its parameters' names, shapes and types."""
    optimizer: str = ""
    batch: str = ""
    """Shapes and types of the first batch."""
    strategy: Mapping[str, str] = field(default_factory=dict)
    """What the script has set, by name, but for how `auto` measures and remembers."""
    versions: str = ""

    def flat(self) -> dict[str, Any]:
        """Return everything by name, one level deep."""
        found = asdict(self)
        return {**found.pop("strategy"), **found}


@dataclass(frozen=True, kw_only=True)
class AutoConfig:
    """The settings of `auto_configs`."""

    steps: int = setting(5, number=1, least=1)
    """Steps to measure of each candidate."""
    time_limit: float = setting(120.0, number=2, above=0)
    """Seconds after which no other candidate is tried."""
    memory_limit_mb: float = setting(0.0, number=3, least=0)
    """MB that a step may need; 0 for what there is."""
    techniques: tuple[str, ...] = setting((), number=4, element=str)
    """Techniques to try although they change the mathematics."""
    file: str = setting("", number=5)
    """File that remembers the choice."""

    @classmethod
    def read(cls, settings: Mapping[str, Any]) -> AutoConfig:
        """Return the settings of a strategy."""
        found = read(cls, settings)
        allowed = changing_mathematics()
        unknown = [name for name in found.techniques if name not in allowed]
        if unknown:
            raise ValueError(
                f"auto_configs['techniques'] names {unknown[0]!r}; it may name "
                f"{', '.join(allowed)}."
            )
        return found


def candidates(strategy: Any, config: AutoConfig, job: Facts) -> list[Candidate]:
    """Return what to try, the plain strategy first, then by the number of changes."""
    workers, machines = job.workers, job.machines
    choices: list[list[tuple[str, dict[str, Any]]]] = []

    def choice(*options: tuple[str, dict[str, Any]]) -> None:
        choices.append([("", {}), *options])

    acting = [kind for kind in known() if workers > 1 or not kind.needs_workers]
    for kind in acting:
        ways = kind.trials(strategy, job.device)
        if kind.keeps_mathematics and ways and not kind.is_on(strategy):
            choice(*ways)
    if workers > 1:
        if machines > 1 and workers > machines and not strategy.use_hierarchical_allreduce:
            group = {"hierarchical_allreduce_inter_nranks": workers // machines}
            choice(("hierarchical", {"use_hierarchical_allreduce": True, **group}))
        if job.parameters * 4 > 4e6 and not strategy.was_set("fuse_grad_size_in_MB"):
            choice(("buckets of 4 MB", {"fuse_grad_size_in_MB": 4}))
    allowed = {kind.name: kind for kind in acting if kind.name in config.techniques}
    if allowed:
        named = [allowed[name] for name in config.techniques if name in allowed]
        choice(*(option for kind in named for option in kind.trials(strategy, job.device)))
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
    measure: Callable[[Candidate, AutoConfig], Trial],
    check: Callable[[Candidate], None],
) -> Any:
    """Return the strategy to train with: remembered, or found by measuring candidates.

    `check` raises ValueError for a candidate whose techniques do not go together, or not with the
    optimizer.
    """
    config = AutoConfig.read(strategy.auto_configs)
    found = candidates(strategy, config, facts)
    half_fails = cache(lambda: _half_fails(facts.device))  # asked of all workers at the same place

    def tried(candidate: Candidate) -> Trial:
        if _adds_half_precision(candidate) and half_fails():
            return Trial(candidate=candidate, note=half_fails())
        return measure(candidate, config)

    def checked(candidate: Candidate) -> None:
        if _adds_half_precision(candidate) and half_fails():
            raise ValueError(half_fails())
        check(candidate)

    kept = recall(config, facts, found, checked)
    if kept is None:
        with random_state_kept():
            trials = search(found, tried, config)
        chosen = best(trials)
        if world.rank() == 0:
            print(table(trials, chosen), file=sys.stderr, flush=True)
        remember(config, facts, trials, chosen)
        kept = chosen.candidate
    return kept.applied_to(strategy)


def _adds_half_precision(candidate: Candidate) -> bool:
    return bool(candidate.changes.get("amp"))


def _half_fails(device: str) -> str:
    """Return why half precision cannot run on some worker's CPU, "" if it can on all.

    Of all that a candidate may add, only products and convolutions in half precision use
    instructions that the script's own steps do not: only they can end a process that trains
    without them. So these are tried in a process of its own, and only on CPUs that are known to
    advertise more than they carry; the outcome is remembered for the machine. Running every
    candidate in a child first would cost an import of torch each (seconds, and a copy of the
    model), and a forked child cannot run backward once its parent has.
    """
    own = half_precision_fails() if device == "cpu" else ""
    if not agreed_most(float(bool(own))):
        return ""
    return f"bfloat16 cannot run here: {own or 'it ends another worker'}"


def fits(trial: Trial, work: Callable[[], Any], device: torch.device) -> Trial:
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
    if agreed_most(float(is_too_much)):
        return replace(trial, note="does not fit in memory")
    return replace(trial, memory=memory)


def timed(trial: Trial, train: Callable[[], Any], steps: int) -> Trial:
    """Return the trial with the time of a step, after two steps that are not counted."""
    train()
    train()
    world.barrier()
    start = time.perf_counter()
    for _ in range(steps):
        train()
    torch.get_device_module("cuda" if gpu_count() else "cpu").synchronize()
    world.barrier()
    return replace(trial, seconds=(time.perf_counter() - start) / steps)


def steps_to_measure(config: AutoConfig, strategy: Any) -> int:
    """Return how many steps show what a strategy costs: whole periods of it, at least as asked."""
    whole = period(strategy)
    return -(-config.steps // whole) * whole


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
    rows = []
    for trial in trials:
        rate = "-" if not trial.seconds else f"{trial.samples / trial.seconds:.1f}"
        memory = "-" if trial.memory is None else f"{trial.memory / 1e6:.1f}"
        note = "taken" if trial is chosen else trial.note
        rows.append((trial.candidate.name, rate, f"{trial.bytes_sent / 1e6:.2f}", memory, note))
    headings = ("strategy", "samples/s", "MB sent/step", "MB memory", "")
    return draw("auto: strategies that were tried", headings, rows, right=headings[1:4])


def recall(
    config: AutoConfig,
    facts: Facts,
    found: Sequence[Candidate],
    check: Callable[[Candidate], None],
) -> Candidate | None:
    """Return the choice that a file remembers, if it is one for this job today; else None.

    Worker 0 reads the file and tells the others, whether they reach it or not. It must be of the
    same job, among today's candidates, and pass the rules.
    """
    if not config.file:
        return None
    kept = _read(config.file) if world.rank() == 0 else {}
    reason = _why_not(kept, facts, found) if world.rank() == 0 and kept is not None else ""
    name = _from_first("" if reason or not kept else str(kept["name"]))
    candidate = next((c for c in found if c.name == name), None)
    if candidate is not None:
        try:
            check(candidate)
        except ValueError as error:
            candidate, reason = None, f"chose {name!r}, which is refused today ({error})"
    if world.rank() == 0:
        if candidate is not None and kept:
            rate, count = kept["samples_per_second"], len(kept["tried"])
            how = f"measured {kept['date']}: {rate:.1f} samples/s, best of {count}"
            print(f"auto: {name!r}, as {config.file} remembers it ({how}).", file=sys.stderr)
        elif reason:
            print(f"auto: {config.file} {reason}; measuring anew.", file=sys.stderr)
    return candidate


def _read(file: str) -> dict[str, Any] | None:
    """Return what a file remembers: empty if there is no file, None if auto did not write it."""
    path = Path(file)
    if not path.exists():
        return {}
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return kept if isinstance(kept, dict) and isinstance(kept.get("job"), dict) else None


def _why_not(kept: dict[str, Any], facts: Facts, found: Sequence[Candidate]) -> str:
    """Return why a remembered choice does not count, as the predicate of a sentence."""
    if not kept:
        return ""
    if kept.get("format") != _FORMAT or not kept.keys() >= _KEYS:
        return "was written by another version of FleetX"
    was, now = kept["job"], json.loads(json.dumps(facts.flat()))
    different = [
        f"{key} {was.get(key, 'not set')} instead of {now.get(key, 'not set')}"
        for key in sorted({*was, *now})
        if was.get(key) != now.get(key)
    ]
    if different:
        more = f" and {len(different) - 2} more" if len(different) > 2 else ""
        return f"is of another job ({'; '.join(different[:2])}{more})"
    if not any(c.name == kept["name"] and dict(c.changes) == kept["changes"] for c in found):
        return f"chose {kept['name']!r}, which is not to be tried today"
    return ""


_KEYS = {"job", "name", "changes", "tried", "date", "samples_per_second"}


def remember(config: AutoConfig, facts: Facts, trials: Sequence[Trial], chosen: Trial) -> None:
    """Write the choice, and what was measured, to the file that the settings name.

    A file that auto has not written stays as it is.
    """
    if not config.file or world.rank() != 0:
        return
    if _read(config.file) is None:
        print(
            f"auto: {config.file} is not a choice that auto has written and stays as it is: remove "
            "it, or name another file in auto_configs['file'].",
            file=sys.stderr,
        )
        return
    tried = [
        {"name": t.candidate.name, "seconds": t.seconds, "bytes": t.bytes_sent, "note": t.note}
        for t in trials
    ]
    candidate = chosen.candidate
    kept = {
        "format": _FORMAT,
        "date": datetime.now().astimezone().isoformat(" ", "minutes"),
        "job": facts.flat(),
        "name": candidate.name,
        "changes": dict(candidate.changes),
        "samples_per_second": chosen.samples / chosen.seconds if chosen.seconds else 0.0,
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
