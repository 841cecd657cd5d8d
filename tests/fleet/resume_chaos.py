"""Kills workers at random moments under --max_restart and compares the end bit for bit.

PYTHONPATH=tests python tests/fleet/resume_chaos.py 50 [seed]
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import warm_start
from waiting import LIMIT, is_running, wait_until

WORKER = Path(__file__).parent / "workers" / "exact_resume.py"


def number_in(path: Path) -> int:
    """Return the number that a worker has written to a file; -1 if there is none yet."""
    text = path.read_text() if path.exists() else ""
    return int(text) if text else -1


def train(folder: Path, technique: str, *, steps: int, kills: int, seed: int) -> list[Any]:
    """Train with two workers and so many kills; return what each worker wrote at the end."""
    folder.mkdir(parents=True)
    generator = random.Random(seed)
    command = [sys.executable, "-m", "fleetx.launch", "--nproc_per_node=2"]
    command += [f"--max_restart={kills}", f"--log_dir={folder / 'log'}", str(WORKER)]
    with open(folder / "output", "wb") as output:
        job = subprocess.Popen(
            [*command, str(folder), str(steps), technique],
            env=warm_start.environment(OMP_NUM_THREADS="1"),
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        for kill in range(kills):
            rank = generator.randrange(2)
            goal = 1 + kill * (steps - 2) // max(1, kills)
            wait_until(
                lambda r=rank, g=goal: (
                    number_in(folder / f"step.{r}") >= g or job.poll() is not None
                ),
                f"step {goal}",
            )
            time.sleep(generator.random() * 0.03)  # anywhere within a step or a save
            victim = number_in(folder / f"pid.{rank}")
            if is_running(victim):
                os.kill(victim, signal.SIGKILL)
                pids = folder / f"pid.{rank}"
                wait_until(
                    lambda p=pids, v=victim: number_in(p) not in (v, -1) or job.poll() is not None,
                    "the restart",
                )
        job.wait(LIMIT)
    finally:
        if job.poll() is None:
            job.terminate()
            job.wait()
    if job.returncode:
        raise AssertionError((folder / "output").read_text()[-3000:])
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(2)]


def compare(folder: Path, technique: str, *, steps: int, kills: int, seed: int) -> None:
    """Train with and without kills, and raise if the ends differ in a bit."""
    expected = train(folder / f"quiet-{technique}", technique, steps=steps, kills=0, seed=seed)
    found = train(folder / f"kills-{technique}", technique, steps=steps, kills=kills, seed=seed)
    if found != expected:
        raise AssertionError(f"after {kills} kills (seed {seed}): {found} instead of {expected}")


def main(kills: int, seed: int) -> None:
    """Kill so many times, with each technique, and report."""
    print(f"resume: {kills} kills with each technique, seed {seed}", flush=True)
    with warm_start.servers(), tempfile.TemporaryDirectory() as name:
        for technique in ("none", "dgc", "amp"):
            begun = time.monotonic()
            compare(Path(name), technique, steps=3 * kills, kills=kills, seed=seed)
            took = time.monotonic() - begun
            print(
                f"resume, {technique}: {kills} kills, {took:.0f} s, equal bit for bit", flush=True
            )


if __name__ == "__main__":
    main(int(sys.argv[1]) if sys.argv[1:] else 50, int(sys.argv[2]) if sys.argv[2:] else 1)
