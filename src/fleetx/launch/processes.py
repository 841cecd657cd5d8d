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
from collections.abc import Callable, Collection

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_POLL = 0.02

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


def _living_parent(pid: int) -> int | None:
    """Return the parent of a process; None if the process has ended or is a zombie."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # The name in parentheses may contain anything, so fields are counted after it.
            state, parent = file.read().rpartition(b")")[2].split()[:2]
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if state in (b"Z", b"X") else int(parent)


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
