"""`fleetx evaluate --against`: time and memory for many long vectors against a live endpoint.

    python bench/evaluation.py [--samples 10000] [--jobs 2]

`fleetx serve` serves a network of two layers (64 -> 256 -> 1000) on this machine; `fleetx evaluate`
computes the vectors itself, requests them from the server, compares, and writes them and a report.
The time is the command's total. Memory is the maximum resident memory of its processes; with four
times the samples it must be the same. Figures go to bench/results/evaluation.json.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from contest import OURS
from goals import goal, show
from record import write_record

INPUTS, HIDDEN, OUTPUTS = 64, 256, 1000
ENVIRONMENT = {**os.environ, "PYTHONPATH": OURS, "OMP_NUM_THREADS": "1"}


def save_model(path: Path) -> None:
    """Save a network with random weights."""
    from fleetx import static
    from fleetx.static import layers

    main, startup = static.Program(), static.Program()
    with static.program_guard(main, startup):
        x = static.data("x", [None, INPUTS], "float32")
        y = layers.fc(layers.fc(x, size=HIDDEN, act="relu"), size=OUTPUTS)
    exe = static.Executor(static.CPUPlace())
    exe.run(startup)
    static.io.save_inference_model(path, [x], [y], exe, program=main)


def save_samples(path: Path, count: int) -> None:
    """Write random samples in parts."""
    random = np.random.default_rng(0)
    rows = np.lib.format.open_memmap(path, "w+", "float32", (count, INPUTS))
    for at in range(0, count, 10000):
        part = rows[at : at + 10000]
        part[:] = random.standard_normal(part.shape)
    rows.flush()


def evaluate(folder: Path, url: str, samples: Path, jobs: int) -> tuple[float, float]:
    """Run the command; return its seconds and the maximum memory of its processes in MB."""
    command = [sys.executable, "-m", "fleetx", "evaluate", str(folder / "model")]
    command += ["--data", str(samples), "--against", url, "--jobs", str(jobs), "--batch", "256"]
    command += ["--out", str(folder / "vectors.safetensors"), "--report", str(folder / "page.html")]
    begin = time.perf_counter()
    process = subprocess.Popen(command, env=ENVIRONMENT)
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - begin
    if os.waitstatus_to_exitcode(status) != 0:
        raise RuntimeError(f"{' '.join(command)} ended with {os.waitstatus_to_exitcode(status)}.")
    return seconds, usage.ru_maxrss / 1024


def main() -> None:
    """Measure, print and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--samples", type=int, default=10000, help="vectors to compare")
    parser.add_argument("--jobs", type=int, default=2, help="processes of fleetx evaluate")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        save_model(folder / "model")
        server = subprocess.Popen(
            [sys.executable, "-m", "fleetx", "serve", str(folder / "model"), "--port", "0"],
            stdout=subprocess.PIPE,
            text=True,
            env=ENVIRONMENT,
        )
        try:
            assert server.stdout is not None
            url = "http://" + server.stdout.readline().split("http://")[1].split()[0]
            found = []
            for count in (options.samples, 4 * options.samples):
                samples = folder / f"{count}.npy"
                save_samples(samples, count)
                found.append(evaluate(folder, url, samples, options.jobs))
        finally:
            server.terminate()
            server.wait()
    (seconds, memory), (_, more) = found
    goals = [
        goal(
            f"seconds for {options.samples} vectors of {OUTPUTS} with `fleetx evaluate --against`, "
            f"{options.jobs} jobs",
            seconds,
            60,
            at_least=False,
        ),
        goal(
            f"largest memory of a process, {4 * options.samples} vectors ({more:.0f} MB), times "
            f"that with {options.samples} ({memory:.0f} MB)",
            more / memory,
            1.1,
            at_least=False,
        ),
    ]
    show(goals)
    write_record("evaluation", goals=goals)


if __name__ == "__main__":
    main()
