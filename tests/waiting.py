"""Waiting for events, with one generous time limit for all tests.

The limit ends a test that hangs; it measures nothing, since a loaded machine may take many times as
long as an idle one. pytest's own limit (pyproject.toml) is longer, so that this message is shown.
"""

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

LIMIT = 300.0
"""Seconds that any single event, or the end of a process, may take."""

Result = TypeVar("Result")


def wait_until(condition: Callable[[], Result], what: str) -> Result:
    """Poll a condition until it holds, and return its value."""
    end = time.monotonic() + LIMIT
    pause = threading.Event()
    while not (found := condition()):
        assert time.monotonic() < end, f"waited {LIMIT:.0f} s for: {what}"
        pause.wait(0.01)
    return found


def is_running(pid: int) -> bool:
    """Return whether a process exists and has not ended; a zombie has ended."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in ("Z", "X")


def wait_for_end(*pids: int) -> None:
    """Wait until processes that are not children of this one have ended."""
    wait_until(lambda: not any(map(is_running, pids)), f"the end of processes {pids}")
