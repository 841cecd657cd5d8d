"""Workers that start quickly: forked from a process that has already loaded torch and FleetX.

Importing torch and the compiler that its optimizers use takes about five seconds of CPU time per
process, and most jobs of these tests train for far less. With `environment()` in the variables of a
job, each of its Python processes that runs a script (such as a worker under fleetrun), `-c` or `-m`
is forked from a server: a real process with its own environment, files, signals and sockets. Tests
of starting, stopping and killing processes start them cold. Tests of another copy of FleetX, or of
the imports of FleetX, use `torch_variables()`: those of a server that has loaded only torch.

Run as a program, this module is the server.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import faulthandler
import fcntl
import gc
import importlib
import importlib.util
import io
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import types
import warnings
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
FOLDER = "FLEETX_TESTS_WARM_START_FOLDER"
_CLONE_NEWNET = 0x40000000
_CLONE_NEWUTS = 0x04000000
_TORCH = ("torch", "torch._dynamo", "torch.distributed", "torch.nn.parallel")
_PRELOADED = (
    *_TORCH,
    "sklearn.datasets",
    "sklearn.model_selection",
    "fleetx.fleet",
    "fleetx.static",
    "fleetx.ps.server.server",
    "fleetx.applications",
    "paddle.fluid",
    "paddle.distributed.fleet",
)


# -- for tests ------------------------------------------------------------------------------------
def environment(**more: str) -> dict[str, str]:
    """Return the environment of a job that starts warm: this process's, and `variables`."""
    return {**os.environ, **variables(), **more}


def variables() -> dict[str, str]:
    """Return the variables of a job that starts warm, with one thread per process."""
    # Two servers with different hashes of strings, as processes have.
    return _variables(["0", "1"], ROOT / "src", ROOT / "compat")


def torch_variables(*path: Path) -> dict[str, str]:
    """Return what a job needs to start from a server that has loaded torch, and nothing of ours.

    `path` is where the job finds its modules, FleetX too.
    """
    server = {"FLEETX_TESTS_WARM_START_SERVER": "torch"}
    return {**_variables(["torch"], *path), **server}


def _variables(servers: list[str], *path: Path) -> dict[str, str]:
    folder = os.environ[FOLDER]
    with (Path(folder) / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # all processes of pytest share the servers
        for server in servers:
            if not (Path(folder) / server).exists():
                _start(folder, server)
    return {
        "FLEETX_TESTS_WARM_START": folder,
        "PYTHONPATH": os.pathsep.join(map(str, (Path(__file__).parent / "warm", *path))),
        "OMP_NUM_THREADS": "1",
        # The launcher's own way to fork workers would load torch again.
        "FLEETX_START_METHOD": "spawn",
    }


def _start(folder: str, name: str) -> None:
    """Start a server; return when it accepts requests."""
    variables = {"PYTHONHASHSEED": "2" if name == "1" else "1", "OMP_NUM_THREADS": "1"}
    variables["PYTHONPATH"] = os.pathsep.join([str(ROOT / "src"), str(ROOT / "compat")])
    if name == "torch":  # which would load FleetX otherwise: see fleetx/torch_plugin.py
        variables["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
    with (Path(folder) / f"{name}.log").open("wb") as log:
        server = subprocess.Popen(
            [sys.executable, __file__, folder, name],
            env={**os.environ, **variables},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
        )
    assert server.stdout is not None
    with server.stdout:
        assert server.stdout.read() == b"ready\n", (Path(folder) / f"{name}.log").read_text()
    (Path(folder) / f"{name}.pid").write_text(str(server.pid))


@contextlib.contextmanager
def servers() -> Iterator[None]:
    """Have a folder for servers, which are started when a test first wants one, and end them."""
    with tempfile.TemporaryDirectory(prefix="warm-") as folder:
        os.environ[FOLDER] = folder
        try:
            yield
        finally:
            del os.environ[FOLDER]
            for file in Path(folder).glob("*.pid"):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(file.read_text()), signal.SIGTERM)


# -- the server -----------------------------------------------------------------------------------
def _load_parent() -> Any:
    """Return the launcher's warm_parent.py, without loading FleetX."""
    path = ROOT / "src" / "fleetx" / "launch" / "warm_parent.py"
    spec = importlib.util.spec_from_file_location("warm_parent", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _serve(folder: str, name: str) -> dict[str, Any]:
    """Fork a process per request; in that process, return the command to run."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(f"{folder}/{name}.new")
    listener.listen(64)
    os.rename(f"{folder}/{name}.new", f"{folder}/{name}")
    os.write(1, b"ready\n")
    os.close(1)
    listener.settimeout(5)
    children: set[int] = set()
    while True:
        children -= {pid for pid in children if os.waitpid(pid, os.WNOHANG)[0]}
        try:
            connection, _ = listener.accept()
        except TimeoutError:
            if not os.path.exists(folder):
                os._exit(0)
            continue
        keeper = os.fork()
        if keeper == 0:
            listener.close()
            return _keep(connection)
        children.add(keeper)
        connection.close()


def _keep(connection: socket.socket) -> dict[str, Any]:
    """Fork the script's process and tell how it ends; kill it if its stand-in has gone."""
    connection.setblocking(True)
    request, descriptors = _PARENT.receive(connection, 5)
    if request is None:
        os._exit(0)  # the process that asks was killed
    keeper = os.getpid()
    pid = os.fork()
    if pid == 0:
        connection.close()
        _PARENT.die_with(keeper)
        _become(request, descriptors)
        return dict(request)
    for descriptor in descriptors:
        os.close(descriptor)
    connection.sendall(pid.to_bytes(8, "little"))
    process = os.pidfd_open(pid)
    ready, _, _ = select.select([process, connection], [], [])
    if process not in ready:
        os.kill(pid, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    with contextlib.suppress(OSError):  # the other side may have gone
        connection.sendall(code.to_bytes(8, "little", signed=True))
    os._exit(0)


def _become(request: dict[str, Any], descriptors: list[int]) -> None:
    """Take over the environment of the requesting process."""
    *files, network, names = descriptors
    _enter(network, "net", _CLONE_NEWNET)
    _enter(names, "uts", _CLONE_NEWUTS)
    os.chdir(request["folder"])
    os.umask(request["umask"])
    _PARENT.take_over(request["environment"], files)
    first, *rest = request["command"]
    sys.orig_argv = [sys.executable, "-u", first, *rest]
    if first in ("-c", "-m"):
        sys.argv = [first, *rest[1:]]
        sys.path[:] = ["" if first == "-c" else os.getcwd(), *request["path"]]
    else:
        sys.argv = [first, *rest]
        sys.path[:] = [os.path.dirname(os.path.abspath(first)), *request["path"]]
    importlib.invalidate_caches()
    for option in request["warnings"]:
        warnings.simplefilter(option)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115 - for the life of the process
    sys.stdout = io.TextIOWrapper(
        io.FileIO(1, "w", closefd=False), encoding="utf-8", write_through=True
    )
    sys.stderr = io.TextIOWrapper(
        io.FileIO(2, "w", closefd=False), "utf-8", "backslashreplace", write_through=True
    )
    if os.environ.get("PYTHONFAULTHANDLER"):
        faulthandler.enable()
    sys.modules["torch"].set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))


def _enter(namespace: int, kind: str, flag: int) -> None:
    """Enter a namespace of the process that handed over, if it has one of its own."""
    with os.fdopen(namespace) as file:
        if os.fstat(file.fileno()).st_ino == os.stat(f"/proc/self/ns/{kind}").st_ino:
            return
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.setns(file.fileno(), flag):
            raise OSError(ctypes.get_errno(), f"the {kind} namespace cannot be entered")


def _run(command: list[str]) -> None:
    """Run a script, `-c code` or `-m module` as Python does, and end."""
    main = types.ModuleType("__main__")
    main.__dict__.update(__builtins__=__builtins__, __cached__=None)
    sys.modules["__main__"] = main
    code: Any = 0
    try:
        if command[0] == "-m":
            runpy.run_module(command[1], run_name="__main__", alter_sys=True)
        elif command[0] == "-c":
            exec(compile(command[1], "<string>", "exec"), main.__dict__)
        else:
            script = os.path.join(os.getcwd(), command[0])
            main.__dict__["__file__"] = script
            with io.open_code(script) as file:
                compiled = compile(file.read(), script, "exec")
            exec(compiled, main.__dict__)
    except SystemExit as error:
        code = error.code
    except BaseException as error:
        code = 130 if isinstance(error, KeyboardInterrupt) else 1
        error = error.with_traceback(error.__traceback__ and error.__traceback__.tb_next)
        sys.excepthook(type(error), error, error.__traceback__)
    if code is not None and not isinstance(code, int):
        print(code, file=sys.stderr)
        code = 1
    _end(main, code or 0)


def _end(main: types.ModuleType, code: int) -> None:
    """End as the interpreter does, but without taking all loaded modules to pieces one by one."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    mpi = sys.modules.get("mpi4py.MPI")
    if mpi is not None and mpi.Is_initialized() and not mpi.Is_finalized():
        mpi.Finalize()  # as mpi4py does when the interpreter ends
    main.__dict__.clear()
    gc.collect()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code & 0xFF)


if __name__ == "__main__":
    for _name in _TORCH if sys.argv[2] == "torch" else _PRELOADED:
        importlib.import_module(_name)
    _PARENT = _load_parent()
    _PARENT.leave_out_of_collections()
    # Nor do the finalizers of torch's operators look through it when a forked process ends.
    for _finalizer in list(weakref.finalize._registry):  # type: ignore[attr-defined]
        _finalizer.atexit = False
    _run(_serve(*sys.argv[1:])["command"])
