"""Interleaved benchmarks: each contestant is a process that runs a number of steps on request.

The processes stay alive and take turns, so that other load on the machine affects all of them
equally. A contestant is a script that prints one JSON line when it is ready (with facts such as the
build time); for every number of steps it reads from its input, it runs them and prints the seconds
they took.
"""

from __future__ import annotations

import json
import os
import socket
import statistics
import subprocess
import sys
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
OURS = os.pathsep.join([str(ROOT / "src"), str(ROOT / "compat")])


@dataclass
class Contestant:
    """One process of the contest."""

    name: str
    script: str
    python: str = sys.executable
    arguments: tuple[str, ...] = ()
    ours: bool = True  # whether `import paddle` is this project's
    variables: dict[str, str] = field(default_factory=dict)
    """Further environment variables."""
    facts: dict[str, Any] = field(default_factory=dict)
    rates: list[float] = field(default_factory=list)
    process: Any = None

    def start(self) -> None:
        """Start the process and wait until it is ready."""
        self.process = self.popen(self.command(), self.environment())
        self.facts = json.loads(self._line())

    def command(self) -> list[str]:
        """Return the command of a process."""
        return [self.python, str(HERE / "contestants" / self.script), *self.arguments]

    def environment(self, **more: str) -> dict[str, str]:
        """Return the variables of a process: one thread, and the source of `import paddle`."""
        threads = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "GLOG_minloglevel": "2"}
        return {**os.environ, **threads, "PYTHONPATH": OURS if self.ours else ""} | {
            **self.variables,
            **more,
        }

    @staticmethod
    def popen(command: list[str], environment: dict[str, str], **more: Any) -> Any:
        """Start a process that reads the number of steps to run from its input."""
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, **more}
        return subprocess.Popen(command, env=environment, text=True, **pipes)

    def _line(self) -> str:
        while True:
            line: str = self.process.stdout.readline()
            if not line:
                raise RuntimeError(f"{self.name} ended with code {self.process.wait()}.")
            if line.startswith("@"):
                return line[1:]

    def window(self, steps: int) -> None:
        """Run some steps and record their rate."""
        self.process.stdin.write(f"{steps}\n")
        self.process.stdin.flush()
        self.rates.append(steps / float(self._line()))

    def stop(self) -> None:
        """Stop the process; its last output may contain more facts."""
        self.process.stdin.close()
        rest = self.process.stdout.read()
        for line in rest.splitlines():
            if line.startswith("@"):
                self.facts.update(json.loads(line[1:]))
        self.process.wait()

    @property
    def rate(self) -> float:
        """The median of the rates, in steps per second."""
        return statistics.median(self.rates)


def contest(contestants: list[Contestant], *, steps: int, rounds: int, starts: int = 1) -> None:
    """Run all contestants in turn for some rounds; the first one rotates.

    The placement of a process makes it a few percent faster or slower for its whole life: small
    differences need several starts.
    """
    for _ in range(starts):
        started: list[Contestant] = []
        try:
            for each in contestants:
                each.start()
                started.append(each)
            for number in range(rounds):
                first = number % len(contestants)
                for each in contestants[first:] + contestants[:first]:
                    each.window(steps)
        finally:
            for each in started:
                each.stop()


def ratio(first: Contestant, second: Contestant) -> float:
    """Return the speed ratio of the first: the median of the ratios within each round."""
    return statistics.median(a / b for a, b in zip(first.rates, second.rates, strict=True))


def free_ports(count: int) -> list[int]:
    """Return free ports."""
    with ExitStack() as stack:
        found = []
        for _ in range(count):
            probe = stack.enter_context(socket.socket())
            probe.bind(("127.0.0.1", 0))
            found.append(int(probe.getsockname()[1]))
        return found
