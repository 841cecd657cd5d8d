"""A small ImageNet folder for tests, and scripts run by two workers on it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import simplejpeg

import warm_start
from waiting import LIMIT

ROOT = Path(__file__).resolve().parents[2]


def write_folder(folder: Path, *, train: int, val: int = 0, size: int = 48) -> str:
    """Write random JPEG files in the documents' layout; return the folder."""
    random = np.random.default_rng(0)
    for phase, count in (("train", train), ("val", val)):
        lines = []
        for i in range(count):
            label = i % 3
            name = f"n{label:08}/n{label:08}_{i}.jpeg"
            path = folder / phase / name
            path.parent.mkdir(parents=True, exist_ok=True)
            # A colour of its own per class, with noise: something that can be learnt.
            image = random.integers(0, 60, (size, size, 3), dtype=np.uint8)
            image[..., label] += 150
            path.write_bytes(simplejpeg.encode_jpeg(image, quality=90))
            lines.append(f"{name} {label}\n")
        (folder / f"{phase}.txt").write_text("".join(lines))
    return str(folder)


TWO = ("--nproc_per_node", "2")


def fleetrun(
    folder: Path, script: Path, *arguments: str, options: tuple[str, ...] = TWO
) -> list[str]:
    """Run a script with two workers under fleetrun; return what each of them printed."""
    command = [sys.executable, "-m", "fleetx.launch", *options]
    command += ["--log_dir", str(folder / "log"), str(script), *arguments]
    environment = warm_start.environment()
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=LIMIT
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return [(folder / "log" / f"workerlog.{rank}").read_text() for rank in range(2)]


def results(folder: Path) -> list[dict]:
    """Return what the workers wrote."""
    return [json.loads((folder / f"out.{rank}").read_text()) for rank in range(2)]
