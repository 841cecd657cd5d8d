"""Merging of all workers' timelines into a Chrome trace for Perfetto and chrome://tracing.

A worker is a process of the trace; its steps contain the stages. Times start at the earliest
span, on the clock of worker 0.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from fleetx.checkpoint import atomic
from fleetx.monitor.files import TRACE, timeline_files


class TimelineError(FileNotFoundError):
    """An error for a folder without a readable timeline."""


def wait_for_ends(folder: Path, patience: float = 5.0) -> None:
    """Wait until the existing files are complete, but not forever: a worker may have died."""
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline:
        if all(p.read_bytes().endswith(b'["end"]\n') for p in timeline_files(folder).values()):
            return
        time.sleep(0.02)


def write_trace(folder: Path, target: Path | None = None) -> tuple[Path, list[str]]:
    """Merge the timelines of a folder; return the file and the problems of its sources."""
    target = folder / TRACE if target is None else target
    trace, problems = merge(folder)
    atomic.write_bytes(target, json.dumps(trace).encode())
    return target, problems


def merge(folder: Path) -> tuple[dict[str, Any], list[str]]:
    """Return the merged trace of a folder, and the problems of its sources."""
    files = timeline_files(folder)
    if not files:
        raise TimelineError(
            f"there is no timeline.N.jsonl in {str(folder)!r}: run the training with "
            "FLEETX_TIMELINE=1, and pass its log folder."
        )
    problems: list[str] = []
    heads: dict[int, dict[str, Any]] = {}
    spans: list[tuple[int, str, str, int, int]] = []
    for rank, path in files.items():
        head, own, problem = _read(path)
        problems += problem
        if head is None:
            continue
        heads[rank] = head
        offset = int(head["clock"]["offset"])
        spans += [(rank, name, kind, a + offset, b + offset) for name, kind, a, b in own]
    if not heads:
        raise TimelineError(f"no timeline in {str(folder)!r} can be read: {'; '.join(problems)}")
    first = min((began for *_, began, _ in spans), default=0)
    events = [event for rank, head in heads.items() for event in _names(rank, head)]
    events += [_event(*span, first) for span in sorted(spans, key=lambda s: (s[0], s[3], -s[4]))]
    clocks = {f"worker {rank}": head["clock"] for rank, head in heads.items()}
    trace = {"traceEvents": events, "displayTimeUnit": "ms", "otherData": {"clocks": clocks}}
    return trace, problems


def _read(path: Path) -> tuple[dict[str, Any] | None, list[Any], list[str]]:
    lines = path.read_text(errors="replace").splitlines()
    try:
        head = json.loads(lines[0])
        head["clock"]["offset"] + 0  # raises if it is not a number
    except (IndexError, KeyError, TypeError, ValueError):
        return None, [], [f"{path.name} has no head and is ignored"]
    spans, damaged = [], 0
    for line in lines[1:]:
        try:
            found = json.loads(line)
        except ValueError:
            damaged += 1
            continue
        if _is_span(found):
            spans.append(found)
        elif found != ["end"]:
            damaged += 1
    return head, spans, [f"{path.name}: {damaged} damaged lines are ignored"] if damaged else []


def _is_span(line: Any) -> bool:
    if not (isinstance(line, list) and len(line) == 4):
        return False
    words, times = line[:2], line[2:]
    return all(isinstance(w, str) for w in words) and all(type(t) is int for t in times)


def _names(rank: int, head: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the metadata events that name a worker and its lane."""
    name = f"worker {rank}" + (f" on {head['host']}" if head.get("host") else "")
    common = {"ph": "M", "pid": rank, "tid": 0}
    return [
        {**common, "name": "process_name", "args": {"name": name}},
        {**common, "name": "process_sort_index", "args": {"sort_index": rank}},
        {**common, "name": "thread_name", "args": {"name": "training"}},
    ]


def _event(rank: int, name: str, kind: str, began: int, ended: int, first: int) -> dict[str, Any]:
    return {
        "name": name,
        "cat": kind,
        "ph": "X",
        "pid": rank,
        "tid": 0,
        "ts": (began - first) / 1000,
        "dur": (ended - began) / 1000,
    }
