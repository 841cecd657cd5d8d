"""The cost of monitoring: steps with it against the same steps without.

    python bench/monitor.py [--rounds 8]

Two workers train with monitoring (both write measurements, worker 0 shows a progress line) and
without, in alternating windows of the same processes. The CPU time of worker 0's thread is
compared: the wait for the other worker varies by more than the cost of monitoring. The figures are
lower quartiles over rounds, and go to bench/results/monitor.json.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from typing import Any

from contest import HERE, OURS
from goals import goal, show
from record import write_record

# The trainings, and the steps per window.
CASES = {
    "small BERT, eager": ("eager", "bert", 6),
    "MLP of 17 MB, eager": ("eager", "wide", 20),
    "MLP of 17 MB, static": ("static", "wide", 20),
}
TINY = {"tiny MLP, eager": ("eager", "mlp", 300), "tiny MLP, static": ("static", "mlp", 300)}


def measure(kind: str, net: str, steps: int, rounds: int) -> list[list[float]]:
    """Return the CPU seconds per step without and with monitoring, by round."""
    script = str(HERE / "contestants" / "monitored.py")
    command = [sys.executable, "-m", "fleetx.launch", "--nproc_per_node", "2", "--log_level"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": OURS}
    with tempfile.TemporaryDirectory() as logs:
        command += ["ERROR", "--log_dir", logs, script, kind, net, str(rounds), str(steps)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
    for line in done.stdout.splitlines():
        if line.startswith("@"):
            found: list[list[float]] = json.loads(line[1:])["rounds"]
            return found
    raise RuntimeError(f"the training of {net} failed: {done.stdout[-2000:]}{done.stderr[-2000:]}")


def least_disturbed(seconds: Sequence[float]) -> float:
    """Return the lower quartile: other load on the machine only makes windows longer."""
    return statistics.quantiles(seconds, n=4)[0]


def main() -> None:
    """Measure, print and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rounds", type=int, default=8, help="windows of each kind")
    rounds = parser.parse_args().rounds
    goals: list[dict[str, Any]] = []
    for name, case in CASES.items():
        found = measure(*case, rounds)
        without, measured = map(least_disturbed, zip(*found, strict=True))
        what = f"{name}: time that a worker computes, measured to not"
        goals.append(goal(what, measured / without, 1.01, at_least=False))
        show(goals[-1:])
    for name, case in TINY.items():
        found = measure(*case, rounds)
        without, measured = map(least_disturbed, zip(*found, strict=True))
        what = f"{name}: µs that a worker computes longer than {1e6 * without:.0f} µs in a step"
        goals.append(goal(what, 1e6 * (measured - without), 50, at_least=False))
        show(goals[-1:])
    write_record("monitor", goals=goals)


if __name__ == "__main__":
    main()
