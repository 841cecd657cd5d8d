"""How long a training step waits for a checkpoint: a blocking save, one in the background, and
what PyTorch has for both (torch.save, torch.distributed.checkpoint's async_save), in one run.

The state is that of a model under Adam: three tensors of each size. All contestants write the same
tensors to the same file system, in turn; the first round, in which memory is touched for the first
time, is reported separately. FleetX's is prepared (fleet.prepare_checkpoint); the first save of a
process that prepared nothing is measured, too. FleetX hashes its data and flushes it to disk.

    python bench/checkpoint.py [--megabytes 400] [--rounds 5] [--folder DIR]
"""

import argparse
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from record import write_record
from rich.console import Console
from rich.table import Table

from fleetx import fleet

GOAL = 0.05


def make_states(megabytes: int) -> dict[str, torch.Tensor]:
    """Return tensors of at most 8 MB each, of so many megabytes in total."""
    sizes = [8_000_000, 8_000_000, 6_000_000, 2_000_000]
    count = max(1, megabytes * 1_000_000 // sum(sizes))
    return {f"{i}.{j}": torch.randn(n // 4) for i in range(count) for j, n in enumerate(sizes)}


class Contest:
    """Each method saves; returns the seconds until the call returned and until all was written."""

    def __init__(self, states: dict[str, torch.Tensor], folder: Path) -> None:
        self.states, self.folder, self.count = states, folder, 0
        self.methods = {
            "FleetX, blocking": self.fleetx_blocking,
            "FleetX, in the background": self.fleetx_background,
            "torch.save": self.torch_save,
            "DCP save": self.dcp_save,
            "DCP async_save": self.dcp_async_save,
        }

    def fleetx_blocking(self) -> tuple[float, float]:
        begun = time.perf_counter()
        fleet.save_checkpoint(str(self.folder / "fleetx"), keep=1, state=self.states)
        took = time.perf_counter() - begun
        return took, took

    def fleetx_background(self) -> tuple[float, float]:
        begun = time.perf_counter()
        folder = str(self.folder / "fleetx")
        fleet.save_checkpoint(folder, keep=1, blocking=False, state=self.states)
        waited = time.perf_counter() - begun
        fleet.wait_for_checkpoint()
        return waited, time.perf_counter() - begun

    def torch_save(self) -> tuple[float, float]:
        begun = time.perf_counter()
        with open(self.folder / "torch", "wb") as stream:
            torch.save(self.states, stream)
            stream.flush()
            os.fsync(stream.fileno())
        took = time.perf_counter() - begun
        return took, took

    def dcp_save(self) -> tuple[float, float]:
        begun = time.perf_counter()
        dcp.save(self.states, checkpoint_id=self._fresh(), no_dist=True)
        took = time.perf_counter() - begun
        return took, took

    def dcp_async_save(self) -> tuple[float, float]:
        begun = time.perf_counter()
        future = dcp.async_save(self.states, checkpoint_id=self._fresh())
        waited = time.perf_counter() - begun
        future.result()
        return waited, time.perf_counter() - begun

    def _fresh(self) -> str:
        self.count += 1
        return str(self.folder / f"dcp.{self.count}")

    def clean(self) -> None:
        for folder in self.folder.glob("dcp.*"):
            shutil.rmtree(folder)


def first_unprepared_wait(megabytes: int, folder: str) -> float:
    """Return how long the first save in the background takes in a process that prepared nothing."""
    fleet.init(is_collective=True)
    return Contest(make_states(megabytes), Path(folder)).fleetx_background()[0]


def in_new_process(function: Callable[..., float], *args: object) -> float:
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(function, *args).result()


def measure(contest: Contest, rounds: int) -> dict[str, dict[str, float]]:
    waits: dict[str, list[float]] = {name: [] for name in contest.methods}
    wholes: dict[str, list[float]] = {name: [] for name in contest.methods}
    for _ in range(rounds + 1):
        for name, method in contest.methods.items():
            waited, whole = method()
            waits[name].append(waited)
            wholes[name].append(whole)
            contest.clean()
    return {
        name: {
            "first_wait": waits[name][0],
            "wait": statistics.median(waits[name][1:]),
            "whole": statistics.median(wholes[name][1:]),
        }
        for name in contest.methods
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--megabytes", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder", help="where to write (default: a temporary folder)")
    args = parser.parse_args()
    load_before = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        unprepared = in_new_process(first_unprepared_wait, args.megabytes, folder)
    fleet.init(is_collective=True)
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        states = make_states(args.megabytes)
        fleet.prepare_checkpoint(state=states)  # finishes during the blocking save, which is first
        found = measure(Contest(states, Path(folder)), args.rounds)
    dist.destroy_process_group()
    blocking = found["FleetX, blocking"]["wait"]
    for row in found.values():
        row["ratio"] = row["wait"] / blocking
    table = Table("method", "a step waits, s", "first time, s", "all written, s", "wait / blocking")
    for name, row in found.items():
        numbers = (f"{row[k]:.3f}" for k in ("wait", "first_wait", "whole"))
        table.add_row(name, *numbers, f"{row['ratio']:.1%}")
    Console().print(table)
    share = found["FleetX, in the background"]["ratio"]
    print(f"A step waits {share:.1%} of a blocking save; goal: less than {GOAL:.0%}.")
    first = found["FleetX, in the background"]["first_wait"]
    print(
        f"The first waits {first:.3f} s, {first / blocking:.1%}; not prepared {unprepared:.3f} s."
    )
    write_record(
        "checkpoint",
        megabytes=args.megabytes,
        rounds=args.rounds,
        load_average=[round(load_before, 1), round(os.getloadavg()[0], 1)],
        first_unprepared=unprepared,
        methods=found,
    )


if __name__ == "__main__":
    main()
