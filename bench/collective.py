"""Collective training against hand-written DistributedDataParallel: two workers, one thread each,
Gloo.

    python bench/collective.py [--rounds 7]

Figures go to bench/results/collective.json.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
from typing import Any

from contest import HERE, OURS, Contestant, contest
from record import write_record
from static_graph import row, show


class GroupContestant(Contestant):
    """A group of workers; rank 0 speaks for it."""

    workers = 2

    def start(self) -> None:
        """Start all workers and wait until rank 0 says that they are ready."""
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = str(probe.getsockname()[1])
        self.others = []
        for rank in reversed(range(self.workers)):
            environment = {
                **os.environ,
                "OMP_NUM_THREADS": "1",
                "PYTHONPATH": OURS,
                "RANK": str(rank),
                "LOCAL_RANK": str(rank),
                "WORLD_SIZE": str(self.workers),
                "LOCAL_WORLD_SIZE": str(self.workers),
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": port,
            }
            process = subprocess.Popen(
                [self.python, str(HERE / "contestants" / self.script), *self.arguments],
                stdin=subprocess.PIPE if rank == 0 else subprocess.DEVNULL,
                stdout=subprocess.PIPE if rank == 0 else subprocess.DEVNULL,
                stderr=None if rank == 0 else subprocess.DEVNULL,
                env=environment,
                text=True,
            )
            if rank == 0:
                self.process = process
            else:
                self.others.append(process)
        self.facts = json.loads(self._line())

    def stop(self) -> None:
        """End the group."""
        super().stop()
        for process in self.others:
            process.wait()


def compare(net: str, steps: int, rounds: int) -> list[dict[str, Any]]:
    """Let the three ways train one network in turn."""
    ddp = GroupContestant("DDP by hand", "collective_ddp.py", sys.executable, (net,))
    eager = GroupContestant("fleetx, eager", "collective_fleet.py", sys.executable, (net,))
    static = GroupContestant("fleetx, static", "collective_static.py", sys.executable, (net,))
    contest([eager, static, ddp], steps=steps, rounds=rounds)
    size = 2 * (16 if net == "resnet18" else 128)
    return [row(f"{net} samples/s", each, ddp, 0.98, size) for each in (eager, static)]


def main() -> None:
    """Run all comparisons, print the table and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rounds", type=int, default=7, help="turns of each contestant")
    options = parser.parse_args()
    rows = compare("mlp", 200, options.rounds) + compare("resnet18", 5, options.rounds)
    show(rows, "Collective training on two workers: Fleet against DDP by hand")
    write_record("collective", rows=rows)


if __name__ == "__main__":
    main()
