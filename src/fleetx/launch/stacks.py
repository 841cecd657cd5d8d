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
from fleetx.launch.processes import catches, state
from fleetx.runtime import heartbeat

# A real-time signal: SIGUSR1 and SIGUSR2 belong to scripts and batch systems.
SIGNAL = int(signal.SIGRTMIN) + 5
# Shorter than the silence after which other machines consider this one lost.
_PATIENCE = 4.0
_POLL = 0.05


def collect(workers: Sequence[Worker]) -> str:
    """Request a stack from every living worker and return the combined report."""
    dumps = request([worker for worker in workers if worker.process.returncode is None])
    parts = []
    for worker in workers:
        if worker.process.returncode is not None:
            parts.append(f"{worker.spec.name}: ended with {worker.process.returncode}")
        else:
            parts.append(_describe(worker, dumps.get(worker.process.pid, "")))
    return "\n".join(parts)


def request(workers: Sequence[Worker]) -> dict[int, str]:
    """Return the output of faulthandler in the workers that can respond, by process."""
    asked: dict[int, tuple[Path, int]] = {}
    for worker in workers:
        pid, file = worker.process.pid, worker.spec.stacks
        # A frozen process does not respond, and one without the handler would be terminated.
        if file is not None and file.exists() and state(pid) != "T" and catches(pid, SIGNAL):
            asked[pid] = file, file.stat().st_size
    for pid in asked:
        os.kill(pid, SIGNAL)
    return _await(asked)


def _await(asked: dict[int, tuple[Path, int]]) -> dict[int, str]:
    """Wait until the files contain new stacks and stop growing."""
    deadline = time.monotonic() + _PATIENCE
    before: dict[int, str] = {}
    while True:
        now = {
            pid: file.read_bytes()[start:].decode("utf-8", errors="replace")
            for pid, (file, start) in asked.items()
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
    if state(worker.process.pid) == "T":
        pid = worker.process.pid
        return f"{head}: frozen, process {pid} was stopped by a signal such as SIGSTOP"
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
