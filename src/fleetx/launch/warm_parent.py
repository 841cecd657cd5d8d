"""A process that has imported PyTorch and forks the workers of a job from itself.

Started as a file by `forking.py`: python -u warm_parent.py SOCKET SUPERVISOR. It answers "ready",
or why forking would be unsafe, and then forks a worker per request. A worker is forked twice, so
that the supervisor adopts it and waits for it as if it had started it. Uses only the standard
library, and leaves as little trace in the script's process as `run_script.py` does. The tests load
this file too, for processes that have more than PyTorch loaded (`tests/warm_start.py`).
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import importlib.util
import json
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from types import ModuleType
from typing import Any

MODULES = ("torch", "torch.distributed", "torch.nn.parallel", "torch._dynamo")
"""Modules that nearly every worker imports; the last one with its first optimizer."""
_WITHOUT_TORCH = ("numpy", "sympy")
"""The largest modules that those above import and that do not import PyTorch."""
_GPU_LIBRARIES = ("libtorch_cuda.so", "libtorch_hip.so", "libtorch_xpu.so")
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
    """Import the modules of workers; return why they cannot be forked now, "" if they can."""
    own_folder = sys.path.pop(0)  # its modules are not for `import`
    gc.disable()  # collections take a quarter of the time of these imports
    try:
        _import_beside(_load_library)
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


def _import_beside(load: Callable[[], None]) -> None:
    """Import what does not need PyTorch while another thread loads the library of PyTorch."""
    thread = threading.Thread(target=load)
    thread.start()
    try:
        for name in _WITHOUT_TORCH:
            with contextlib.suppress(Exception):  # PyTorch decides whether it needs it
                importlib.import_module(name)
    finally:
        thread.join()


def _load_library() -> None:
    """Load the library with PyTorch's kernels, without holding the GIL.

    `import torch` finds it loaded, or else loads it itself, with an error if that is impossible.
    This library does not use Python, so its initialisation does not need the GIL. Versions for GPUs
    first load the libraries of the vendor, in an order of their own: they are left alone.
    """
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return
    folder = os.path.join(os.path.dirname(spec.origin), "lib")
    library = os.path.join(folder, "libtorch_cpu.so")
    found = os.listdir(folder) if os.path.isfile(library) else []
    if found and not any(name in found for name in _GPU_LIBRARIES):
        # Functions of a library are called without the GIL; the constructor of CDLL holds it.
        ctypes.CDLL(None).dlopen(os.fsencode(library), os.RTLD_NOW)


def _serve(connection: socket.socket, supervisor: int) -> list[str]:
    """Fork a worker per request; return its command in that process."""
    while True:
        request, descriptors = receive(connection, 2)
        if request is None:
            os._exit(0)  # the supervisor needs no more workers
        middle = os.fork()
        if middle == 0:
            if os.fork():
                os._exit(0)
            command = _become(request, descriptors, supervisor)
            connection.sendall(os.getpid().to_bytes(8, "little"))
            connection.close()
            return command
        os.waitpid(middle, 0)
        for descriptor in descriptors:
            os.close(descriptor)


def receive(connection: socket.socket, files: int) -> tuple[dict[str, Any] | None, list[int]]:
    """Return a request and the files sent with it; None if the other side has gone."""
    size, descriptors, _, _ = socket.recv_fds(connection, 8, files)
    if not size:
        return None, []
    text = b""
    while len(text) < int.from_bytes(size, "little"):
        part = connection.recv(1 << 20)
        if not part:  # it was killed in the middle of its request
            for descriptor in descriptors:
                os.close(descriptor)
            return None, []
        text += part
    return json.loads(text), descriptors


def die_with(parent: int) -> None:
    """End this process when its parent ends."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it ended in between
        os._exit(1)


def take_over(environment: dict[str, str], files: list[int]) -> None:
    """Give this process a session, standard files and variables of its own."""
    os.setsid()
    for number, descriptor in enumerate(files):
        os.dup2(descriptor, number)
    for descriptor in {file for file in files if file > 2}:
        os.close(descriptor)
    os.environ.clear()
    os.environ.update(environment)
    # Modules that draw a seed from the system when they are imported draw again.
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed()


def leave_out_of_collections() -> None:
    """Exclude what is loaded now from garbage collection: it stays, and its memory is shared.

    Hardly anything of it is garbage: a collection before takes longer than it saves.
    """
    gc.freeze()
    gc.enable()


def _become(request: dict[str, Any], descriptors: list[int], supervisor: int) -> list[str]:
    """Prepare this process as if the supervisor had started it; return its command."""
    while os.getppid() != supervisor:  # adopted as soon as the process between has ended
        if not os.path.exists(f"/proc/{supervisor}"):
            os._exit(1)
        time.sleep(_POLL)
    die_with(supervisor)
    if request["cpus"]:
        os.sched_setaffinity(0, request["cpus"])
    take_over(request["environment"], [descriptors[0], descriptors[1], descriptors[1]])
    sys.modules["torch"].default_generator.seed()
    command: list[str] = request["command"]
    sys.orig_argv[:] = command
    return command


def _main() -> list[str]:
    connection = socket.socket(fileno=int(sys.argv[1]))
    obstacle = _obstacle()
    connection.sendall((obstacle or "ready").encode() + b"\n")
    if obstacle:
        os._exit(0)
    leave_out_of_collections()
    return _serve(connection, int(sys.argv[2]))


if __name__ == "__main__":
    _RUNNER = _load_runner()
    _RUNNER.run(_main())
