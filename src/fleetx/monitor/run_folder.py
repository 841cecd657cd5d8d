"""Reader of the files that the workers of a run wrote to their log folder.

A run that crashed or is still in progress is read as far as it got; missing or damaged data is
reported in sentences.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fleetx.monitor.files import FACTS, step_files
from fleetx.monitor.record import StepRecord, record_from


@dataclass
class WorkerSteps:
    """The file of one worker."""

    rank: int
    records: list[StepRecord] = field(default_factory=list)
    host: str = ""
    workers: int = 0
    """The number of workers in the job, as recorded."""
    starts: int = 0
    """The number of times it was started."""
    has_ended: bool = False
    damaged: int = 0
    """The number of unreadable lines."""


@dataclass
class RunFolder:
    """The data of a run."""

    path: Path
    facts: dict[str, Any]
    workers: list[WorkerSteps]
    problems: list[str]


def read_run(folder: Path) -> RunFolder:
    """Read the log folder of a run; raise an error with advice if there is nothing to read."""
    if not folder.is_dir():
        raise FileNotFoundError(f"there is no folder {str(folder)!r}: pass the --log_dir of a run.")
    found = step_files(folder)
    if not found:
        raise FileNotFoundError(
            f"there is no steps.N.jsonl in {str(folder)!r}: workers write it if fleetrun is given "
            "--log_dir (or with FLEETX_LOG_DIR set), when the training uses fleet."
        )
    problems: list[str] = []
    facts = _read_facts(folder / FACTS, problems)
    workers = [read_steps(path, rank) for rank, path in found.items()]
    known = facts.get("workers")
    count = known if isinstance(known, int) else max(worker.workers for worker in workers)
    strangers = [worker for worker in workers if count and worker.rank >= count]
    for worker in strangers:
        problems.append(
            f"steps.{worker.rank}.jsonl belongs to another run: this one has {count} workers; "
            "it is ignored."
        )
    workers = [worker for worker in workers if worker not in strangers]
    missing = sorted(set(range(count)) - {worker.rank for worker in workers})
    if missing:
        problems.append(
            f"{_workers(missing)} has no file: copy the steps.N.jsonl of other machines into "
            "this folder."
        )
    for worker in workers:
        problems += _problems_of(worker)
    return RunFolder(folder, facts, workers, problems)


def _workers(ranks: list[int]) -> str:
    names = ", ".join(map(str, ranks))
    return f"Worker {names}" if len(ranks) == 1 else f"Workers {names}"


def _problems_of(worker: WorkerSteps) -> list[str]:
    found = []
    if worker.damaged:
        lines = "1 line" if worker.damaged == 1 else f"{worker.damaged} lines"
        found.append(f"steps.{worker.rank}.jsonl has {lines} that cannot be read.")
    if worker.starts > 1:
        found.append(f"Worker {worker.rank} was started {worker.starts} times.")
    if not worker.has_ended:
        last = (
            f"after step {worker.records[-1].step}" if worker.records else "before its first step"
        )
        found.append(
            f"Worker {worker.rank} stopped recording {last}: it was killed, failed, or is still "
            "running."
        )
    return found


def _read_facts(path: Path, problems: list[str]) -> dict[str, Any]:
    try:
        facts = json.loads(path.read_text())
    except FileNotFoundError:
        problems.append(f"There is no {path.name}: the strategy of the run is unknown.")
        return {}
    except ValueError as error:
        problems.append(f"{path.name} cannot be read ({error}): the strategy is unknown.")
        return {}
    if not isinstance(facts, dict):
        problems.append(f"{path.name} does not describe a run: the strategy is unknown.")
        return {}
    return facts


def read_steps(path: Path, rank: int) -> WorkerSteps:
    """Read one worker's file and count unreadable lines."""
    worker = WorkerSteps(rank)
    base = 0
    for line in path.read_text(errors="replace").splitlines():
        if not line:
            continue
        try:
            fields = json.loads(line)
            kind = fields.get("kind") if isinstance(fields, dict) else None
            if kind == "start":
                worker.starts += 1
                worker.has_ended = False
                worker.host = str(fields.get("host", ""))
                worker.workers = int(fields.get("workers", 0))
            elif kind == "end":
                worker.has_ended = True
            else:
                record = record_from(fields)
                last = worker.records[-1].step if worker.records else 0
                if record.step + base <= last:  # a restarted worker counts from 1 again
                    base = last
                record.step += base
                worker.records.append(record)
        except ValueError:
            worker.damaged += 1
    return worker
