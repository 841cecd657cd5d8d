"""Where idle workers are: in a collective, frozen, elsewhere, or in a call of unlimited duration.

The evidence comes from the heartbeat, the kernel's state of the process, and the Python stack of
the main thread. In doubt a worker is not in a collective, which avoids false reports of hangs.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence

from fleetx.launch import processes, stacks
from fleetx.launch.fault_dump import Frame, threads
from fleetx.launch.group import Worker
from fleetx.runtime import heartbeat

# Files whose functions may take unlimited time.
_EXEMPT_FILES = (
    # imports
    "<frozen importlib._bootstrap>",
    # compilation; the files around it also run compiled code
    "/torch/_dynamo/convert_frame.py",
    "/torch/_inductor/compile_fx.py",
    "/torch/utils/cpp_extension.py",
    "/triton/compiler/compiler.py",
    # checkpoints
    "/torch/serialization.py",
    "/torch/distributed/checkpoint/",
    "/safetensors/",
    "/fleetx/checkpoint/",
    "/fleetx/fleet/saving/",
    # debuggers and prompts
    "/bdb.py",
    "/pydevd",
    "/prompt_toolkit/",
)
_COLLECTIVES = "/torch/distributed/distributed_c10d.py"
_AUTOGRAD = "/torch/autograd/graph.py"
# Barriers of scripts, and rendezvous, which has a limit of its own.
_BARRIERS = ("barrier", "monitored_barrier", "new_group", "init_process_group")
# A process may wait for work from another for any time.
_MESSAGES = ("send", "recv", "isend", "irecv", "batch_isend_irecv", "recv_object_list")


class Place(enum.Enum):
    """Where an idle worker is."""

    COLLECTIVE = "waits for other workers or servers"
    FROZEN = "stopped by a signal"
    ELSEWHERE = "idle outside of any collective"
    EXEMPT = "where any time is fine"


def places(workers: Sequence[Worker]) -> set[Place]:
    """Return where the workers, which are alive, are."""
    dumps = stacks.request(workers)
    return {_place(worker, dumps.get(worker.process.pid, "")) for worker in workers}


def frozen(workers: Sequence[Worker]) -> tuple[str, ...]:
    """Name the workers that were stopped by a signal."""
    return tuple(
        f"{worker.spec.name} (process {worker.process.pid})"
        for worker in workers
        if processes.state(worker.process.pid) == "T"
    )


def _place(worker: Worker, dump: str) -> Place:
    pid = worker.process.pid
    state = processes.state(pid)
    if state == "T":
        return Place.FROZEN
    pulse = heartbeat.read(worker.spec.heartbeat)
    if (
        state == "t"  # a debugger is attached
        or pulse.steps < 2  # still importing, or compiling
        or pulse.collective in heartbeat.MAY_TAKE_LONG
        or processes.waits_for_input(pid)
    ):
        return Place.EXEMPT
    found = threads(dump)
    place = _place_of_stack(found[0] if found else [])
    return Place.COLLECTIVE if place == Place.ELSEWHERE and pulse.collective else place


def _place_of_stack(frames: Sequence[Frame]) -> Place:
    if any(part in file for file, _, _ in frames for part in _EXEMPT_FILES):
        return Place.EXEMPT
    called = {name for file, _, name in frames if file.endswith(_COLLECTIVES)}
    if called.intersection(_BARRIERS):
        return Place.EXEMPT
    if called.intersection(_MESSAGES):
        return Place.ELSEWHERE
    if called or any(file.endswith(_AUTOGRAD) for file, _, _ in frames):
        return Place.COLLECTIVE
    return Place.ELSEWHERE
