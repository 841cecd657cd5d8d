"""Snapshots of the process before and after a test, to find what the test leaves behind.

They cover processes (including orphans), threads, sockets, files in the checkout, environment
variables, the working directory, a session of Fleet, a process group, a measured run, changed
default programs and settings of torch. The first is taken after fixtures of wider scope are set up,
so that their resources are not attributed to the test. Both cost less than a millisecond per test.
"""

from __future__ import annotations

import ctypes
import gc
import multiprocessing.process
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from waiting import is_running

ROOT = Path(__file__).resolve().parent.parent

GRACE = 20.0
"""Seconds that ended processes, threads and sockets may take to go away."""

GRACE_OF_EXEC = 10.0
"""Seconds that a new process may take to have a command line."""

# Processes that multiprocessing keeps until the interpreter ends: one each, started when needed.
_KEPT_PROCESSES = ("multiprocessing.forkserver", "multiprocessing.resource_tracker")
# torch's compiler keeps a pool of processes for the life of the interpreter; ours are shared.
_KEPT_COMMANDS = ("torch/_inductor/compile_worker", "tests/warm_start.py")
# Threads of libraries that live as long as the process, by the beginning of their names.
_KEPT_THREADS = (
    "pytest_timeout",  # the timer of a test's limit
    "tqdm_monitor",
    "InductorSubproc",  # torch's compiler, with the processes above
    "SubprocPool",
    "execnet",  # xdist's connection
    "fsspecIO",  # the loop of fsspec's file systems
)
# Such threads that have no name of their own, by class.
_KEPT_CLASSES = (
    "TMonitor",  # tqdm
    "GarbageCollectorThread",  # pyzmq frees the memory of sent messages
)
# Variables that pytest sets, torch where its compiler is loaded, and scikit-learn.
_LIBRARY_VARIABLES = {
    "CUDA_MODULE_LOADING",
    "KMP_DUPLICATE_LIB_OK",
    "KMP_INIT_AT_FORK",
    "PYTEST_CURRENT_TEST",
    "TORCHINDUCTOR_CACHE_DIR",
    "TRITON_CACHE_DIR",
    "_TORCHINDUCTOR_PYOBJECT_TENSOR_DATA_PTR",
}
# Files and folders that git does not know and that tools write wherever they run.
_PASSED_OVER = {".git", ".venv", "__pycache__", ".pytest_cache", ".hypothesis", ".ruff_cache"}

# State that is None where its module is loaded, by words of its name.
_UNSET_AT_FIRST = ("session", "group", "meeting", "measured run")

_PR_SET_CHILD_SUBREAPER = 36


def adopt_orphans() -> None:
    """Make this process adopt orphaned descendants, so that none is missed."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _children(pid: int | str) -> set[int]:
    found: set[int] = set()
    try:
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/children") as file:
                found.update(map(int, file.read().split()))
    except (FileNotFoundError, ProcessLookupError):
        pass  # ended while it was looked at
    return found


def _command(pid: int) -> str:
    """Return the command line of a process; "" if it has ended.

    A process that is starting has an empty one for a moment: fork() returns in the parent before
    the kernel has copied the arguments of exec().
    """
    end = time.monotonic() + GRACE_OF_EXEC
    try:
        while True:
            command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
            if command or not is_running(pid) or time.monotonic() > end:
                return command
            os.sched_yield()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def _processes() -> set[int]:
    """Return the children of this process and of those that multiprocessing keeps."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return set()  # the usual case, and the cheap one
    own = _children("self")
    starter = getattr(sys.modules.get("multiprocessing.forkserver"), "_forkserver", None)
    kept = getattr(starter, "_forkserver_pid", None)
    return own | _children(kept) if kept else own


def _is_left(pid: int) -> bool:
    command = _command(pid)
    if any(name in command for name in (*_KEPT_PROCESSES, *_KEPT_COMMANDS)):
        return False
    return is_running(pid)


def _reap(pids: Iterable[int]) -> None:
    """Reap adopted processes that have ended."""
    known = {child.pid for child in subprocess._active}  # type: ignore[attr-defined]
    # Taken from multiprocessing, an ended process would count as running until a time-out.
    known |= {child.pid for child in multiprocessing.process._children}  # type: ignore[attr-defined]
    for pid in pids:
        if pid not in known and not is_running(pid):
            try:
                os.waitpid(pid, os.WNOHANG)
            except ChildProcessError:
                continue  # somebody else's, or already waited for


def _threads() -> set[threading.Thread]:
    return set(threading.enumerate())


def _sockets() -> set[str]:
    found = set()
    for descriptor in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{descriptor}")
        except FileNotFoundError:
            continue  # the one that listed the others
        if target.startswith("socket:"):
            found.add(target)
    return found


def _socket_text(inode: str) -> str:
    """Describe a socket by what the kernel lists for its number; "" for one half of a pair.

    Pairs inside a process belong to event loops and pools, which are found as threads.
    """
    number = inode.removeprefix("socket:[").removesuffix("]")
    for kind in ("tcp", "tcp6", "udp", "unix"):
        with open(f"/proc/self/net/{kind}") as file:
            for line in file:
                fields = line.split()
                if kind == "unix" and fields[6:7] == [number]:
                    return f"unix socket {fields[7]}" if len(fields) > 7 else ""
                if kind != "unix" and fields[9:10] == [number]:
                    state = "listening" if fields[3] == "0A" else "connected"
                    return f"{state} {kind} socket at port {int(fields[1].rpartition(':')[2], 16)}"
    return ""


def _folders(root: Path) -> Iterator[str]:
    for parent, folders, _ in os.walk(root):
        folders[:] = [f for f in folders if f not in _PASSED_OVER and not f.startswith(".venv")]
        yield parent


class Checkout:
    """Untracked files in the checkout; only changed folders are listed again."""

    def __init__(self, root: Path = ROOT) -> None:
        self._root = root
        self._folders = list(_folders(root))
        self._times: dict[str, int] = {}
        self._known: set[str] | None = None
        self.look()

    def _changed(self) -> bool:
        changed = False
        for folder in self._folders:
            try:
                modified = os.stat(folder).st_mtime_ns
            except FileNotFoundError:
                modified = 0
            if self._times.get(folder) != modified:
                self._times[folder] = modified
                changed = True
        return changed

    def _untracked(self) -> set[str] | None:
        command = ["git", "--no-optional-locks", "status", "--porcelain", "--untracked-files=all"]
        try:
            done = subprocess.run(command, cwd=self._root, capture_output=True, text=True)
        except FileNotFoundError:
            return None  # no git here
        if done.returncode:
            return None  # not a clone
        return {line[3:] for line in done.stdout.splitlines() if line.startswith("??")}

    def look(self) -> set[str]:
        """Return the files that are new since the last call."""
        if not self._changed():
            return set()
        found = self._untracked()
        new = set() if found is None or self._known is None else found - self._known
        self._known = found
        return {name for name in new if (self._root / name).exists()}


def _fleet_sessions() -> dict[str, Any]:
    names = {
        "fleetx.fleet": "fleetx.fleet",
        "paddle.fluid.incubate.fleet.collective": "the collective fleet of Paddle 1",
        "paddle.fluid.incubate.fleet.parameter_server.distribute_transpiler": (
            "the fleet of Paddle 1 for parameter servers"
        ),
    }
    loaded = {text: sys.modules.get(name) for name, text in names.items()}
    return {text: module.fleet for text, module in loaded.items() if module is not None}


def has_session() -> bool:
    """Return whether `fleet.init` was called and the session not ended."""
    return any(session._role_maker is not None for session in _fleet_sessions().values())


def end_sessions() -> None:
    """Return every session of Fleet to the state before `init`, and leave the process group."""
    for session in _fleet_sessions().values():
        session._begin()
    if "fleetx.comm.world" in sys.modules:
        sys.modules["fleetx.comm.world"].disconnect()
    if "fleetx.monitor.run" in sys.modules:
        sys.modules["fleetx.monitor.run"].stop()


def _state() -> dict[str, Any]:
    """Return the state of the process by name."""
    state: dict[str, Any] = {"the working directory": os.getcwd()}
    torch = sys.modules.get("torch")
    if torch is not None and hasattr(torch, "get_default_dtype"):
        state["torch's default dtype"] = torch.get_default_dtype()
        state["torch's switch of gradients"] = torch.is_grad_enabled()
        state["torch's number of threads"] = torch.get_num_threads()
        dist = sys.modules.get("torch.distributed")
        state["torch's process group"] = (
            "initialised" if dist is not None and dist.is_initialized() else None
        )
    world = sys.modules.get("fleetx.comm.world")
    if world is not None:
        state["the pending meeting of workers"] = world._pending
    for name, session in _fleet_sessions().items():
        state[f"the session of {name}"] = session._role_maker and "initialised"
    run = sys.modules.get("fleetx.monitor.run")
    if run is not None:
        state["the measured run"] = run.current() and "active"
    programs = sys.modules.get("fleetx.static.graph.default_programs")
    if programs is not None:
        main, startup = programs.default_main_program(), programs.default_startup_program()
        state["the default main program"] = (id(main), len(main.global_block().ops))
        state["the default startup program"] = (id(startup), len(startup.global_block().ops))
    device = sys.modules.get("paddle.device")
    if device is not None:
        state["the device that paddle.set_device chose"] = device._device
    scopes = sys.modules.get("fleetx.static.run.scope")
    if scopes is not None:
        state["the global scope"] = id(scopes.global_scope())
    return state


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name not in _LIBRARY_VARIABLES}


@dataclass
class Before:
    """The state before a test."""

    processes: set[int]
    threads: set[threading.Thread]
    sockets: set[str]
    environment: Mapping[str, str]
    state: Mapping[str, Any]


def before(checkout: Checkout) -> Before:
    """Return a snapshot of the current state."""
    checkout.look()
    return Before(_processes(), _threads(), _sockets(), _environment(), _state())


def left(was: Before, checkout: Checkout) -> list[str]:
    """Describe everything that is new since the snapshot; end processes that are left."""
    return [
        *_left_processes(was),
        *_left_threads(was),
        *_left_sockets(was),
        *(f"the file {name} in the checkout" for name in sorted(checkout.look())),
        *_changes("the environment variable", was.environment, _environment()),
        *_changes("", was.state, _state()),
    ]


def _after_a_while(find: Callable[[], Any]) -> Any:
    """Repeat a search until it finds nothing or the grace period is over; return its result."""
    found = find()
    end = time.monotonic() + GRACE
    pause = threading.Event()
    pauses = 0
    while found and time.monotonic() < end:
        if pauses == 5:  # what only a cycle of references keeps, such as an error and its frames
            gc.collect()
        pause.wait(0.01)
        pauses += 1
        found = find()
    return found


def _left_processes(was: Before) -> list[str]:
    def find() -> set[int]:
        new = _processes() - was.processes
        _reap(new)
        return {pid for pid in new if _is_left(pid)}

    texts = []
    for pid in sorted(_after_a_while(find)):
        texts.append(f"the process {pid}: {_command(pid).strip()[:200]}")
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    return texts


def _left_threads(was: Before) -> list[str]:
    def find() -> list[threading.Thread]:
        return [
            thread
            for thread in _threads() - was.threads
            if not thread.name.startswith(_KEPT_THREADS)
            and type(thread).__name__ not in _KEPT_CLASSES
        ]

    return [f"the thread {t.name!r} ({t!r})" for t in _after_a_while(find)]


def _left_sockets(was: Before) -> list[str]:
    def find() -> list[str]:
        texts = map(_socket_text, _sockets() - was.sockets)
        return sorted(filter(None, texts))

    return [f"the {text}" for text in _after_a_while(find)]


def _changes(kind: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    if old == new:
        return []
    return [
        f"{kind} {name}: {old.get(name)!r} before, {new.get(name)!r} now".strip()
        for name in sorted({*old, *new})
        # What a test is the first to load was in its first state before.
        if old.get(name) != new.get(name) and (kind or name in old or _is_set(name, new[name]))
    ]


def _is_set(name: str, value: Any) -> bool:
    return value is not None and any(word in name for word in _UNSET_AT_FIRST)
