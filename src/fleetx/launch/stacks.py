"""Where hanging workers hang: their Python stacks and the collective each of them is in.

The workers run under `run_script.py`, which writes all threads' stacks on `SIGNAL`. The lines of
source are added here, and the stack is turned so that it reads like a traceback.
"""

from __future__ import annotations

import linecache
import os
import re
import signal
import time
from collections.abc import Sequence
from pathlib import Path

from fleetx.launch import heartbeat
from fleetx.launch.group import Worker

# A real-time signal: SIGUSR1 and SIGUSR2 belong to scripts and batch systems.
SIGNAL = int(signal.SIGRTMIN) + 5
_PATIENCE = 2.0
_POLL = 0.05
_FRAME = re.compile(r'  File "(?P<file>.*)", line (?P<line>\d+|\?\?\?) in (?P<name>.*)')


def collect(workers: Sequence[Worker]) -> str:
    """Ask every living worker for its stack and return the report of all."""
    asked = [w for w in workers if w.process.returncode is None and w.spec.stacks is not None]
    for worker in asked:
        os.kill(worker.process.pid, SIGNAL)
    dumps = _await([worker.spec.stacks for worker in asked if worker.spec.stacks is not None])
    parts = []
    for worker in workers:
        if worker.process.returncode is not None:
            parts.append(f"{worker.spec.name}: ended with {worker.process.returncode}")
        else:
            parts.append(_describe(worker, dumps.get(worker.spec.stacks, "")))
    return "\n".join(parts)


def _await(files: list[Path]) -> dict[Path | None, str]:
    """Wait until the files hold stacks and no longer grow."""
    deadline = time.monotonic() + _PATIENCE
    before: dict[Path | None, str] = {}
    while True:
        now: dict[Path | None, str] = {
            file: file.read_text(encoding="utf-8", errors="replace") if file.exists() else ""
            for file in files
        }
        if (now == before and all(now.values())) or time.monotonic() >= deadline:
            return now
        before = now
        time.sleep(_POLL)


def _describe(worker: Worker, dump: str) -> str:
    pulse = heartbeat.read(worker.spec.heartbeat)
    threads = _threads(dump)
    where = pulse.collective or (_collective(threads[0]) if threads else "")
    steps = f"{pulse.steps} steps done" if pulse.steps else "no step counted"
    head = f"{worker.spec.name}: {steps}, in {where or 'no collective that is known'}"
    if not threads:
        return f"{head}\n  (no Python stack: it did not answer)"
    lines = [head]
    for number, thread in enumerate(threads):
        lines.append("  main thread:" if number == 0 else f"  thread {number + 1}:")
        lines += [f"  {line}" for frame in thread for line in _frame_lines(frame)]
    return "\n".join(lines)


def _threads(dump: str) -> list[list[tuple[str, int, str]]]:
    """Read faulthandler's text: per thread its frames, outermost first; the main thread first."""
    threads = []
    for part in re.split(r"^(?:Current thread|Thread) .*$", dump, flags=re.MULTILINE)[1:]:
        frames = [
            (found["file"], int(found["line"]) if found["line"].isdecimal() else 0, found["name"])
            for found in map(_FRAME.match, part.splitlines())
            if found and os.path.basename(found["file"]) != "run_script.py"
        ]
        if frames:
            threads.append(frames[::-1])
    return threads[::-1]  # faulthandler begins with the newest thread


def _frame_lines(frame: tuple[str, int, str]) -> list[str]:
    file, line, name = frame
    shown = [f'  File "{file}", line {line}, in {name}']
    source = linecache.getline(file, line).strip()
    return [*shown, f"    {source}"] if source else shown


def _collective(frames: list[tuple[str, int, str]]) -> str:
    """Name the torch.distributed call, or the backward pass, at the end of a stack."""
    for file, _, name in frames:
        if file.endswith("torch/distributed/distributed_c10d.py"):
            return name
    if any(file.endswith("torch/autograd/graph.py") for file, _, _ in frames):
        return "the backward pass (DistributedDataParallel reduces gradients there)"
    return ""
