"""The heartbeat of a worker for the launcher: counters in shared memory.

The training step calls `beat()` once per step and may name the collective it is about to wait
in; other work calls `show_life()`. Without a launcher they do nothing. The launcher reads the
counters to find hangs. The monitor registers a callback with `listen` to measure how long each of
these waits takes.
"""

from __future__ import annotations

import mmap
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from fleetx.runtime import environment

BARRIER = "barrier"
COMPILATION = "compilation"
MAY_TAKE_LONG = frozenset({BARRIER, COMPILATION})
"""Names of waits of unlimited duration, which never count as a hang."""

_COUNT = struct.Struct("<QQ")
_TEXT = 240
_SIZE = _COUNT.size + _TEXT


@dataclass(frozen=True)
class Pulse:
    """A worker's last heartbeat."""

    steps: int
    signs: int
    """The number of all heartbeats, steps included."""
    collective: str
    """The collective that its main thread is in; '' for none."""


def prepare(path: str | Path) -> None:
    """Create a worker's heartbeat file before the worker starts."""
    Path(path).write_bytes(bytes(_SIZE))


def read(path: str | Path) -> Pulse:
    """Read a worker's heartbeat file."""
    data = Path(path).read_bytes()
    text = data[_COUNT.size :].split(b"\0")[0]
    steps, signs = _COUNT.unpack_from(data)
    return Pulse(steps, signs, text.decode("utf-8", errors="replace"))


class _Writer:
    """This process's own heartbeat, opened at the first beat."""

    def __init__(self) -> None:
        self._memory: mmap.mmap | None = None
        self._steps = self._signs = 0
        self._names: list[str] = []
        path = environment.heartbeat_file()
        if path:
            with open(path, "r+b") as file:
                self._memory = mmap.mmap(file.fileno(), _SIZE)

    def beat(self) -> None:
        self._steps += 1
        self.show_life()

    def show_life(self) -> None:
        if self._memory is not None:
            self._signs += 1
            _COUNT.pack_into(self._memory, 0, self._steps, self._signs)

    def enter(self, name: str) -> None:
        # What other threads wait for says nothing about the progress of the worker.
        if threading.current_thread() is threading.main_thread():
            self._names.append(name)
            self._show(name)

    def leave(self) -> None:
        if threading.current_thread() is threading.main_thread():
            self._names.pop()
            self._show(self._names[-1] if self._names else "")

    def _show(self, name: str) -> None:
        if self._memory is not None:
            data = name.encode()[: _TEXT - 1]
            self._memory[_COUNT.size : _COUNT.size + len(data) + 1] = data + b"\0"


Waited = Callable[[str, float, float], None]
"""Callback for a collective's name and the start and end of the wait for it (perf_counter)."""


class _Listened(_Writer):
    """A heartbeat that also reports how long this thread waited; used only if monitoring is on."""

    def __init__(self, told: Waited) -> None:
        super().__init__()
        self._told = told
        self._thread = threading.get_ident()
        self._open: list[str] = []
        self._began = 0.0

    def enter(self, name: str) -> None:
        super().enter(name)
        if threading.get_ident() == self._thread:
            if not self._open:
                self._began = time.perf_counter()
            self._open.append(name)

    def leave(self) -> None:
        super().leave()
        if threading.get_ident() == self._thread and self._open:
            name = self._open.pop()
            if not self._open:  # outermost only: nested waits are not counted twice
                self._told(name, self._began, time.perf_counter())


_writer: _Writer | None = None


def _own() -> _Writer:
    global _writer
    if _writer is None:
        _writer = _Writer()
    return _writer


def listen(told: Waited | None) -> None:
    """Call `told` for every wait of this thread from now on; None removes the callback."""
    global _writer
    old = _own()
    _writer = _Writer() if told is None else _Listened(told)
    _writer._steps, _writer._signs = old._steps, old._signs


def beat() -> None:
    """Count a completed training step."""
    _own().beat()


def show_life() -> None:
    """Count a heartbeat that is not a step: a model or a program was run."""
    _own().show_life()


@contextmanager
def collective(name: str) -> Iterator[None]:
    """Announce the collective that this worker may wait in while the block runs."""
    writer = _own()
    writer.enter(name)
    try:
        yield
    finally:
        writer.leave()
