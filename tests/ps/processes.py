"""Servers and workers in separate processes, for tests."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch
from starter import starter

from fleetx.ps.server.server import ServerSettings, run_server
from ports import free_endpoints
from waiting import LIMIT


def _begin(log: str | None, target: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    torch.set_num_threads(1)
    if log is not None:
        stream = open(log, "a", buffering=1)  # noqa: SIM115 - until the process ends
        os.dup2(stream.fileno(), sys.stderr.fileno())
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    target(*arguments)


class Process:
    """A process that can be killed, stopped and restarted."""

    def __init__(self, target: Callable[..., Any], *arguments: Any, log: str | None = None) -> None:
        self._call = (log, target, arguments)
        self.start()

    def start(self) -> None:
        self.process = starter.Process(target=_begin, args=self._call, daemon=True)
        self.process.start()

    def signal(self, number: int) -> None:
        if self.process.is_alive():
            os.kill(self.process.pid, number)

    def kill(self) -> None:
        self.signal(signal.SIGKILL)
        self.process.join()

    def end(self, seconds: float = LIMIT) -> int | None:
        """Return the exit code; None if it still runs after the timeout."""
        self.process.join(seconds)
        return self.process.exitcode


@contextlib.contextmanager
def servers(
    count: int = 1, endpoints: list[str] | None = None, log: str | None = None, **settings: Any
) -> Iterator[tuple[list[str], list[Process]]]:
    """Run servers; a callable setting is called with the server's number."""
    endpoints = endpoints or free_endpoints(count)
    running = []
    try:
        for index, endpoint in enumerate(endpoints):
            own = {name: v(index) if callable(v) else v for name, v in settings.items()}
            own.setdefault("allow_insecure", "keys" not in own)
            made = ServerSettings(index=index, servers=count, **own)
            running.append(Process(run_server, endpoint, made, log=log))
        yield endpoints, running
    finally:
        for process in running:
            process.kill()
