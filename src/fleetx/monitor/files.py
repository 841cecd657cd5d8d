"""The names of the files in a run's log folder."""

from __future__ import annotations

import re
from pathlib import Path

FACTS = "run.json"
"""Facts of the job and the composed strategy, written by worker 0."""
TRACE = "timeline.json"
"""The timelines of all workers, merged into one trace."""
PAGE = "report.html"


def step_file(folder: Path, rank: int) -> Path:
    """Return the file with the steps of a worker."""
    return folder / f"steps.{rank}.jsonl"


def timeline_file(folder: Path, rank: int) -> Path:
    """Return the file with the timeline of a worker."""
    return folder / f"timeline.{rank}.jsonl"


def event_folder(folder: Path, rank: int) -> Path:
    """Return the folder with the event files of a worker."""
    return folder / "tensorboard" / f"worker{rank}"


def step_files(folder: Path) -> dict[int, Path]:
    """Return the step files by worker."""
    return _by_worker(folder, "steps")


def timeline_files(folder: Path) -> dict[int, Path]:
    """Return the timeline files by worker."""
    return _by_worker(folder, "timeline")


def _by_worker(folder: Path, word: str) -> dict[int, Path]:
    name = re.compile(rf"{word}\.(\d+)\.jsonl")
    found = {int(m[1]): p for p in folder.glob("*.jsonl") if (m := name.fullmatch(p.name))}
    return dict(sorted(found.items()))
