"""What measuring costs: steps with it against the same steps without.

    python bench/monitor.py [--rounds 8]

Two workers train, with measurements written by both and a progress line of worker 0, and without,
window by window in the same processes: where a process happens to be placed matters more than what
is measured here. The ratio is the median over rounds. Figures go to bench/results/monitor.json.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from typing import Any

from contest import HERE, OURS
from goals import goal, show
from record import write_record

# What is trained, and how many steps a window has.
CASES = {
    "small BERT, eager": ("eager", "bert", 6),
    "MLP of 17 MB, eager": ("eager", "wide", 20),
    "MLP of 17 MB, static": ("static", "wide", 20),
}
TINY = {"tiny MLP, eager": ("eager", "mlp", 300), "tiny MLP, static": ("static", "mlp", 300)}


def measure(kind: str, net: str, steps: int, rounds: int) -> list[list[float]]:
    """Return seconds per step without and with measuring, by round."""
    script = str(HERE / "contestants" / "monitored.py")
    command = [sys.executable, "-m", "fleetx.launch", "--nproc_per_node", "2", "--log_level"]
    command += ["ERROR", script, kind, net, str(rounds), str(steps)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": OURS}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    for line in done.stdout.splitlines():
        if line.startswith("@"):
            found: list[list[float]] = json.loads(line[1:])["rounds"]
            return found
    raise RuntimeError(f"the training of {net} failed: {done.stdout[-2000:]}{done.stderr[-2000:]}")


def main() -> None:
    """Measure, print and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rounds", type=int, default=8, help="windows of each kind")
    rounds = parser.parse_args().rounds
    goals: list[dict[str, Any]] = []
    for name, case in CASES.items():
        found = measure(*case, rounds)
        ratio = statistics.median(without / measured for without, measured in found)
        goals.append(goal(f"{name}: steps/s measured to not", ratio, 0.99, at_least=True))
        show(goals[-1:])
    for name, case in TINY.items():
        found = measure(*case, rounds)
        cost = 1e6 * statistics.median(measured - without for without, measured in found)
        step = 1e6 * statistics.median(without for without, _ in found)
        what = f"{name}: µs that a step of {step:.0f} µs takes longer"
        goals.append(goal(what, cost, 50, at_least=False))
        show(goals[-1:])
    write_record("monitor", goals=goals)


if __name__ == "__main__":
    main()
