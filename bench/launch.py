"""The time to start a job with fleetrun, and to stop one.

1. From the command to the end of rank 0's first training step, against torchrun with the same
   script, with 2 and with 16 CPU workers, interleaved: fleetrun as it is (workers are forked from a
   process that has loaded PyTorch), and with --start_method spawn.
2. From `kill -9` of one worker to the end of the launcher, when every other process of the job is
   gone: with workers that exit on SIGTERM, and with workers that ignore it.

    python bench/launch.py [--rounds 5] [--many_rounds 3]

On two cores a job of 16 workers takes torchrun half a minute: with the defaults about 8 minutes.
"""

import argparse
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from record import write_record
from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parent.parent
LAUNCHERS = {
    "torchrun": ["-m", "torch.distributed.run"],
    "fleetrun": ["-m", "fleetx.launch"],
    "fleetrun, spawn": ["-m", "fleetx.launch", "--start_method=spawn"],
}
SHARES = {2: 0.5, 16: 0.2}
"""By the number of workers: the largest share of torchrun's time to the first step."""
LIMIT = 5.0
"""The maximum time in seconds from the death of a worker until all are gone."""

STEP = """
import sys, time
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(64, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model(torch.ones(4, 64)).sum().backward()
optimizer.step()
if dist.get_rank() == 0:
    with open(sys.argv[1], "w") as file:
        file.write(repr(time.time()))
dist.destroy_process_group()
"""

WAIT = """
import os, signal, sys, time
if sys.argv[2] == "deaf":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
with open(f"{sys.argv[1]}.{os.environ['RANK']}.part", "w") as file:
    file.write(str(os.getpid()))
os.rename(file.name, file.name.removesuffix(".part"))
time.sleep(1000)
"""


def environment() -> dict[str, str]:
    """Return the environment of both launchers.

    With bytecode, as after any installation: if the shell disables it, all sources but PyTorch's
    would be compiled at every start.
    """
    found = os.environ.get("PYTHONPATH")
    path = os.pathsep.join([str(ROOT / "src"), *([found] if found else [])])
    kept = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}


def to_first_step(launcher: str, workers: int, folder: Path) -> float:
    script, mark = folder / "step.py", folder / "first-step"
    script.write_text(STEP)
    mark.unlink(missing_ok=True)
    start = time.time()
    done = subprocess.run(
        [sys.executable, *LAUNCHERS[launcher], f"--nproc_per_node={workers}", script, mark],
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
    )
    # The exit code does not count: with any launcher that starts Python anew, PyTorch sometimes
    # aborts a process whose interpreter ends while a thread of Gloo still releases its last
    # all-reduce, which takes the GIL (2.13: ~AsyncWork in ProcessGroupGloo::runLoop).
    if not mark.exists():
        raise SystemExit(f"{launcher} ended with {done.returncode}:\n{done.stderr}")
    return float(mark.read_text()) - start


def to_stop(folder: Path, manner: str) -> float:
    """Kill one of four workers; return the seconds until the launcher has stopped all others."""
    script, mark = folder / "wait.py", folder / "pid"
    script.write_text(WAIT)
    launcher = subprocess.Popen(
        [sys.executable, "-m", "fleetx.launch", "--nproc_per_node=4", script, mark, manner],
        cwd=folder,
        env=environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    files = [Path(f"{mark}.{rank}") for rank in range(4)]
    while not all(file.exists() for file in files):
        if launcher.poll() is not None:
            raise SystemExit(f"fleetrun ended with {launcher.returncode} before its workers ran")
        time.sleep(0.01)
    pids = [int(file.read_text()) for file in files]
    start = time.monotonic()
    os.kill(pids[2], signal.SIGKILL)
    code = launcher.wait()
    seconds = time.monotonic() - start
    left = [pid for pid in pids if Path(f"/proc/{pid}").exists()]
    if code != 137 or left:
        raise SystemExit(f"fleetrun ended with {code} and left {left} behind")
    for file in files:
        file.unlink()
    return seconds


def figures(values: list[float], goal: float | None) -> dict[str, float | None]:
    return {
        "median_s": round(statistics.median(values), 3),
        "min_s": round(min(values), 3),
        "max_s": round(max(values), 3),
        "goal_s": None if goal is None else round(goal, 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5, help="measurements of each kind")
    parser.add_argument("--many_rounds", type=int, default=3, help="of jobs with 16 workers")
    options = parser.parse_args()
    rounds = {2: options.rounds, 16: options.many_rounds}
    times: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for launcher in ("torchrun", "fleetrun"):  # fills the disk cache, writes bytecode
            to_first_step(launcher, 2, folder)
        for workers, count in rounds.items():
            for _ in range(count):
                for launcher in LAUNCHERS:
                    key = f"command to first step, {workers} workers, {launcher}"
                    times.setdefault(key, []).append(to_first_step(launcher, workers, folder))
        for _ in range(options.rounds):
            for manner in ("willing", "deaf"):
                key = f"kill -9 to all stopped, {manner} workers"
                times.setdefault(key, []).append(to_stop(folder, manner))
    goals = {key: LIMIT for key in times if key.startswith("kill")}
    for workers, share in SHARES.items():
        first = f"command to first step, {workers} workers, "
        if first + "torchrun" in times:
            peer = statistics.median(times[first + "torchrun"])
            goals[first + "fleetrun"] = share * peer
    rows = {key: figures(values, goals.get(key)) for key, values in times.items()}
    table = Table("what", "median s", "min s", "max s", "at most")
    for key, row in rows.items():
        table.add_row(key, *("" if value is None else f"{value:.2f}" for value in row.values()))
    Console().print(table)
    write_record("launch", rounds=options.rounds, times=rows)


if __name__ == "__main__":
    main()
