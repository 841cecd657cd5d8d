"""Two processes per launcher, so that killing either of them leaves nothing behind.

The process that the user started only forwards signals and waits. Its child, the supervisor,
starts and monitors the workers. If the first is killed with SIGKILL, the second receives a signal
and stops the workers in order; if the second is killed, its workers die with it. The surviving
process inherits and ends what workers had started.
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Callable
from types import FrameType

from fleetx.launch.processes import become_subreaper, die_with_parent, end_all, reap_orphans

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


def run_guarded(supervise: Callable[[], int]) -> int:
    """Run `supervise` in a child process and return its exit code once everything is cleaned up."""
    parent = os.getpid()
    become_subreaper()
    sys.stdout.flush()
    sys.stderr.flush()
    # Signals are blocked until both processes have installed their handlers.
    signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    child = os.fork()
    if child == 0:
        _be_supervisor(supervise, parent)
    return _wait(child)


def _be_supervisor(supervise: Callable[[], int], parent: int) -> None:
    code = 1
    try:
        # Leave the terminal's foreground group: Ctrl-C arrives once, through the parent.
        os.setsid()
        become_subreaper()
        die_with_parent(parent, signal.SIGTERM)
        code = supervise()
    except BaseException:  # reported here: the caller's code must not run in this process
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _wait(child: int) -> int:
    ended = False

    def forward(signum: int, frame: FrameType | None) -> None:
        if not ended:
            os.kill(child, signum)

    previous = {}
    for signum in STOP_SIGNALS:
        if signal.getsignal(signum) != signal.SIG_IGN:  # respect nohup and `&`
            previous[signum] = signal.signal(signum, forward)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)
    _, status = os.waitpid(child, 0)
    ended = True
    for signum, handler in previous.items():
        signal.signal(signum, handler)
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        name = signal.Signals(-code).name
        text = f"fleetrun: the supervisor was ended by {name}; its workers are stopped."
        print(text, file=sys.stderr)
    end_all(signal.SIGKILL, 0, reap_orphans)
    return code if code >= 0 else 128 - code
