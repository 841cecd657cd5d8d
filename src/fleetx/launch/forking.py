"""Workers forked from a process that has PyTorch loaded: a job loads it once per machine.

`WarmParent` is that process (`warm_parent.py`), seen from the supervisor; `ForkedProcess` is a
worker, with as much of `subprocess.Popen` as the launcher uses. If nothing can be forked, workers
are started one by one, and a line says why.
"""

from __future__ import annotations

import json
import os
import re
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from fleetx.launch import warm_parent
from fleetx.launch.processes import die_with_parent

_POLL = 0.05
_PYTHON = 2
"""The words of a worker's command that start Python."""
_IMPORTS = re.compile(rb"^\s*(?:import|from)\s+(?:torch|fleetx|paddle)\b", re.MULTILINE)


class Process(Protocol):
    """A process of this machine, as the launcher uses it."""

    pid: int

    @property
    def returncode(self) -> int | Any:
        """The exit code as of the last `poll`; None while it runs."""

    def poll(self) -> int | None:
        """Find out whether the process has ended; return its exit code or None."""


class ForkedProcess:
    """A worker that this process has adopted."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Find out whether the process has ended; return its exit code or None."""
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode


class WarmParent:
    """The process that workers are forked from."""

    def __init__(self, environment: dict[str, str], messages: Path) -> None:
        ours, theirs = socket.socketpair()
        self._connection = ours
        self._messages = messages
        command = [sys.executable, "-u", warm_parent.__file__, str(theirs.fileno())]
        with messages.open("wb") as file, theirs:
            self._process = subprocess.Popen(
                [*command, str(os.getpid())],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                pass_fds=[theirs.fileno()],
                preexec_fn=partial(die_with_parent, os.getpid(), signal.SIGKILL),
            )

    @property
    def pid(self) -> int:
        """The process, while it is this one's child."""
        return self._process.pid

    def poll(self) -> None:
        """Poll the process, so that it does not stay as a zombie."""
        self._process.poll()

    def await_ready(self, check: Callable[[], None]) -> str:
        """Wait until workers can be forked; return why they cannot be, "" if they can.

        `check` is called several times a second and may raise.
        """
        answer = b""
        while not answer.endswith(b"\n"):
            check()
            if select.select([self._connection], [], [], _POLL)[0]:
                part = self._connection.recv(4096)
                if not part:
                    return f"the process that loads PyTorch has failed ({self._last_line()})"
                answer += part
        text = answer.decode().strip()
        return "" if text == "ready" else text

    def _last_line(self) -> str:
        lines = self._messages.read_text(encoding="utf-8", errors="replace").split("\n")
        return next((line.strip() for line in reversed(lines) if line.strip()), "without a message")

    def start(
        self,
        command: Sequence[str],
        environment: dict[str, str],
        files: tuple[int, int],
        cpus: Iterable[int] = (),
    ) -> ForkedProcess | None:
        """Fork a worker that runs the command of a Python script; None if this process has died.

        `files` are its input and its output, `cpus` the cores it stays on, none for all.
        """
        request = {"command": list(command), "environment": environment, "cpus": list(cpus)}
        text = json.dumps(request).encode()
        try:
            socket.send_fds(self._connection, [len(text).to_bytes(8, "little")], files)
            self._connection.sendall(text)
            answer = self._connection.recv(8, socket.MSG_WAITALL)
        except OSError:
            answer = b""
        return ForkedProcess(int.from_bytes(answer, "little")) if len(answer) == 8 else None

    def close(self) -> None:
        """End the process; its workers continue."""
        self._connection.close()
        self._process.kill()
        self._process.wait()


def is_python(command: Sequence[str]) -> bool:
    """Return whether a worker's command runs a Python script with this interpreter."""
    return list(command[:_PYTHON]) == [sys.executable, "-u"]


def uses_torch(script: str) -> bool:
    """Return whether a file imports PyTorch, directly or through fleetx or paddle."""
    path = Path(script)
    return path.is_file() and _IMPORTS.search(path.read_bytes()) is not None
