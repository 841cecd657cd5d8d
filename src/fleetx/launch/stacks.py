"""Diagnosis of hangs: the workers' Python stacks and the collective each of them is in.

The workers run under `run_script.py`, which writes the stacks of all threads on `SIGNAL`;
`fault_dump` parses them.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path

from fleetx.launch.fault_dump import Frame, lines_of, threads
from fleetx.launch.group import Worker
from fleetx.runtime import heartbeat

# A real-time signal: SIGUSR1 and SIGUSR2 belong to scripts and batch systems.
SIGNAL = int(signal.SIGRTMIN) + 5
_PATIENCE = 2.0
_POLL = 0.05


def collect(workers: Sequence[Worker]) -> str:
    """Request a stack from every living worker and return the combined report."""
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
    """Wait until the files contain stacks and stop growing."""
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
    found = threads(dump)
    where = pulse.collective or (_collective(found[0]) if found else "")
    steps = f"{pulse.steps} steps done" if pulse.steps else "no step counted"
    head = f"{worker.spec.name}: {steps}, in {where or 'no known collective'}"
    if not found:
        return f"{head}\n  (no Python stack: the process did not respond)"
    lines = [head]
    for number, thread in enumerate(found):
        lines.append("  main thread:" if number == 0 else f"  thread {number + 1}:")
        lines += [f"  {line}" for frame in thread for line in lines_of(frame)]
    return "\n".join(lines)


def _collective(frames: list[Frame]) -> str:
    """Return the torch.distributed call, or the backward pass, at the top of a stack."""
    for file, _, name in frames:
        if file.endswith("torch/distributed/distributed_c10d.py"):
            return name
    if any(file.endswith("torch/autograd/graph.py") for file, _, _ in frames):
        return "the backward pass (DistributedDataParallel reduces gradients there)"
    return ""
