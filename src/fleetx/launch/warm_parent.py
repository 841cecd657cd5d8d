"""A process that has PyTorch loaded and forks the workers of a job from itself.

Started as a file by `forking.py`: python -u warm_parent.py SOCKET SUPERVISOR. It answers "ready",
or why forking would be unsafe, and then forks a worker per request. A worker is forked twice, so
that the supervisor adopts it and waits for it as if it had started it. Uses only the standard
library, and leaves as little trace in the script's process as `run_script.py` does.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import importlib.util
import json
import os
import signal
import socket
import sys
import time
from types import ModuleType
from typing import Any

MODULES = ("torch", "torch.distributed", "torch.nn.parallel", "torch._dynamo")
"""What nearly every worker imports; the last one with its first optimizer."""
_PR_SET_PDEATHSIG = 1
_POLL = 0.001


def _load_runner() -> ModuleType:
    """Return run_script.py, without a place in `sys.modules`."""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "run_script.py")
    spec = importlib.util.spec_from_file_location("run_script", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _obstacle() -> str:
    """Import what workers need; return why they cannot be forked now, "" if they can."""
    own_folder = sys.path.pop(0)  # its modules are not for `import`
    try:
        for name in MODULES:
            importlib.import_module(name)
    except ImportError as error:
        return f"PyTorch cannot be imported ({error})"
    finally:
        sys.path.insert(0, own_folder)
    if sys.modules["torch"].cuda.is_initialized():
        return "importing PyTorch has initialised a GPU"
    threads = len(os.listdir("/proc/self/task"))
    if threads > 1:
        return f"importing PyTorch has started {threads - 1} threads"
    return ""


def _serve(connection: socket.socket, supervisor: int) -> list[str]:
    """Fork a worker per request; return its command in that process."""
    while True:
        size, descriptors, _, _ = socket.recv_fds(connection, 8, 2)
        if not size:
            os._exit(0)  # the supervisor needs no more workers
        text = b""
        while len(text) < int.from_bytes(size, "little"):
            text += connection.recv(1 << 20)
        middle = os.fork()
        if middle == 0:
            if os.fork():
                os._exit(0)
            command = _become(json.loads(text), descriptors, supervisor)
            connection.sendall(os.getpid().to_bytes(8, "little"))
            connection.close()
            return command
        os.waitpid(middle, 0)
        for descriptor in descriptors:
            os.close(descriptor)


def _become(request: dict[str, Any], descriptors: list[int], supervisor: int) -> list[str]:
    """Make this process one that the supervisor could have started; return its command."""
    while os.getppid() != supervisor:  # adopted as soon as the process between has ended
        if not os.path.exists(f"/proc/{supervisor}"):
            os._exit(1)
        time.sleep(_POLL)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != supervisor:
        os._exit(1)
    os.setsid()
    if request["cpus"]:
        os.sched_setaffinity(0, request["cpus"])
    os.dup2(descriptors[0], 0)
    os.dup2(descriptors[1], 1)
    os.dup2(descriptors[1], 2)
    for descriptor in descriptors:
        os.close(descriptor)
    os.environ.clear()
    os.environ.update(request["environment"])
    command: list[str] = request["command"]
    sys.orig_argv[:] = command
    # Modules that draw a seed from the system when they are imported draw again.
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed()
    sys.modules["torch"].default_generator.seed()
    return command


def _main() -> list[str]:
    connection = socket.socket(fileno=int(sys.argv[1]))
    obstacle = _obstacle()
    connection.sendall((obstacle or "ready").encode() + b"\n")
    if obstacle:
        os._exit(0)
    # What is there now is never garbage: left out of collections, its memory stays shared.
    gc.collect()
    gc.freeze()
    return _serve(connection, int(sys.argv[2]))


if __name__ == "__main__":
    _RUNNER = _load_runner()
    _RUNNER.run(_main())
