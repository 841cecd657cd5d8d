"""Process trees: find the descendants of this process and end all of them reliably.

Linux provides this through /proc and prctl. A process that is a *subreaper* adopts its orphaned
descendants, so no process started by a worker can escape by losing its parent.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import time
from collections.abc import Callable, Collection, Sequence

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_POLL = 0.02
# The numbers of the system calls read, and select and pselect6, by machine.
_INPUT_CALLS = {"x86_64": (0, (23, 270)), "aarch64": (63, (72,))}

_libc = ctypes.CDLL(None, use_errno=True)  # loaded here: a forked child must not load libraries


def become_subreaper() -> None:
    """Make this process adopt its orphaned descendants."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent(parent: int, signum: int = signal.SIGKILL) -> None:
    """Send `signum` to this process when the thread of `parent` that started it ends."""
    _prctl(_PR_SET_PDEATHSIG, signum)
    if os.getppid() != parent:  # the parent ended before the call
        os.kill(os.getpid(), signum)


def _prctl(option: int, value: int) -> None:
    if _libc.prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl({option}) failed")


def descendants() -> list[int]:
    """List the living processes below this one, parents before children."""
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdecimal():
            parent = _living_parent(int(entry))
            if parent is not None:
                children.setdefault(parent, []).append(int(entry))
    found: list[int] = []
    queue = [os.getpid()]
    while queue:
        below = children.get(queue.pop(0), [])
        found += below
        queue += below
    return found


def cpu_seconds(pids: Sequence[int]) -> float:
    """Return the processor time that processes, their threads and their children have used."""
    wanted, ticks = set(pids), 0
    for pid in descendants():
        fields = _fields(pid)
        if fields is None:
            continue
        if pid in wanted or int(fields[1]) in wanted:
            wanted.add(pid)
            ticks += sum(map(int, fields[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


def state(pid: int) -> str:
    """Return the kernel's letter for the state of a process: T if a signal stopped it, t if a
    debugger did, "" if the process has gone."""
    fields = _fields(pid)
    return "" if fields is None else fields[0].decode("ascii")


def catches(pid: int, signum: int) -> bool:
    """Return whether a process has a handler for a signal."""
    try:
        with open(f"/proc/{pid}/status", encoding="utf-8", errors="replace") as file:
            masks = [line.split()[1] for line in file if line.startswith("SigCgt:")]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return any(int(mask, 16) >> (signum - 1) & 1 for mask in masks)


def waits_for_input(pid: int) -> bool:
    """Return whether the main thread of a process waits for standard input.

    If the kernel does not report it, assume so for every process that reads from a terminal.
    """
    machine = os.uname().machine
    try:
        source = os.readlink(f"/proc/{pid}/fd/0")
    except (FileNotFoundError, ProcessLookupError):  # it has closed its input, or ended
        return False
    if source == "/dev/null":
        return False
    try:
        with open(f"/proc/{pid}/syscall", "rb") as file:
            call = file.read().split()
    except (FileNotFoundError, PermissionError):  # a container or a kernel without it
        machine = ""
    except ProcessLookupError:
        return False
    if machine not in _INPUT_CALLS:
        return source.startswith(("/dev/pts/", "/dev/tty"))
    reading, selecting = _INPUT_CALLS[machine]
    if len(call) < 2:  # it is running
        return False
    number, first = int(call[0]), int(call[1], 16)
    # A select over one descriptor is that of readline.
    return (number == reading and first == 0) or (number in selecting and first == 1)


def _fields(pid: int) -> list[bytes] | None:
    """Return what the kernel lists for a process, from its state on; None if it has gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # The name in parentheses may contain anything, so fields are counted after it.
            return file.read().rpartition(b")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None


def _living_parent(pid: int) -> int | None:
    """Return the parent of a process; None if the process has ended or is a zombie."""
    fields = _fields(pid)
    return None if fields is None or fields[0] in (b"Z", b"X") else int(fields[1])


def end_all(
    signum: int,
    grace: float,
    reap: Callable[[], None],
    hurry: Callable[[], bool] = lambda: False,
) -> list[int]:
    """Signal every descendant, wait up to `grace` seconds, kill the rest; return what remains.

    `reap` collects the exit codes of ended children; `hurry` cuts the grace period short. Only
    processes in an uninterruptible system call can remain.
    """
    _signal(descendants(), signum)
    _wait_until_gone(time.monotonic() + grace, reap, hurry)
    deadline = time.monotonic() + 30  # on a loaded machine even SIGKILL takes time
    left = descendants()
    while left and time.monotonic() < deadline:
        _signal(left, signal.SIGKILL)  # repeated: one of them may just have forked
        _wait_until_gone(time.monotonic() + _POLL, reap)
        left = descendants()
    reap()
    return left


def _signal(pids: list[int], signum: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):  # it has already ended
            os.kill(pid, signum)


def _wait_until_gone(
    deadline: float, reap: Callable[[], None], hurry: Callable[[], bool] = lambda: False
) -> None:
    while True:
        reap()
        if not descendants() or hurry() or time.monotonic() >= deadline:
            return
        time.sleep(_POLL)


def reap_orphans(keep: Collection[int] = ()) -> None:
    """Reap ended children, except those in `keep`, so that no zombies remain."""
    while True:
        try:
            ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return
        if ended is None or ended.si_pid in keep:
            return
        os.waitpid(ended.si_pid, 0)
