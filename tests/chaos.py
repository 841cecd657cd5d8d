"""Runs the parts of `make chaos` one after the other, and ends with a line for each.

    python tests/chaos.py make chaos-servers chaos-files …

The first argument is the make program, the others are its targets. A part that fails does not stop
the others; the exit code is 1 if one has failed.
"""

from __future__ import annotations

import shlex
import subprocess
import sys
import time
from dataclasses import dataclass


@dataclass(frozen=True)
class Outcome:
    """What became of one part."""

    part: str
    code: int
    seconds: float
    last: str
    """The last line that it printed."""

    def __str__(self) -> str:
        held = "held" if self.code == 0 else f"FAILED with exit code {self.code}"
        return f"{self.part}: {held} after {self.seconds:.0f} s: {self.last}"


def run(command: list[str], part: str) -> Outcome:
    """Run a part, show what it prints, and return what became of it."""
    begun, last = time.monotonic(), "(it printed nothing)"
    process = subprocess.Popen(
        [*command, part], stdout=subprocess.PIPE, text=True, errors="replace"
    )
    assert process.stdout is not None
    for line in process.stdout:
        print(line, end="", flush=True)
        last = line.strip() or last
    return Outcome(part, process.wait(), time.monotonic() - begun, last)


def main(make: str, *parts: str) -> int:
    """Run all parts and return the exit code."""
    command = [*shlex.split(make), "--no-print-directory"]
    outcomes = [run(command, part) for part in parts]
    failed = sum(outcome.code != 0 for outcome in outcomes)
    print(f"\nchaos: {len(parts) - failed} of {len(parts)} parts held")
    for outcome in outcomes:
        print(outcome)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
