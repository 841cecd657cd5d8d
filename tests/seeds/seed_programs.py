"""Starting the programs of examples/seeds as their documents say."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import warm_start
from waiting import LIMIT

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples" / "seeds"
COST = re.compile(r"^worker_index: (\d), step(\d+) cost = (\d+\.\d+)", re.MULTILINE)
EPOCH = re.compile(
    r"^\[Epoch (\d+), batch (\d+)\] loss: \d+\.\d{5}, acc1: \d\.\d{5}, acc5: \d\.\d{5}$",
    re.MULTILINE,
)


def environment(folder: Path, **settings: str) -> dict[str, str]:
    """Return an environment in which `python` and `fleetrun` are this project's."""
    commands = folder / "bin"
    commands.mkdir(exist_ok=True)
    for name, module in (("python", ""), ("fleetrun", " -m fleetx.launch")):
        (commands / name).write_text(f'#!/bin/sh\nexec {sys.executable}{module} "$@"\n')
        (commands / name).chmod(0o755)
    return warm_start.environment(PATH=f"{commands}:{os.environ['PATH']}", **settings)


def run(folder: Path, *command: object, fails: bool = False, **settings: str) -> str:
    """Run a command in a folder; return all that it printed."""
    done = subprocess.run(
        [str(part) for part in command],
        cwd=folder,
        env=environment(folder, **settings),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=LIMIT,
    )
    assert (done.returncode != 0) == fails, done.stdout[-4000:]
    return done.stdout


def workers(folder: Path, script: Path, *arguments: object, **settings: str) -> list[str]:
    """Run a script with two workers; return what each of them printed."""
    run(folder, "fleetrun", "--nproc_per_node", 2, script, *arguments, **settings)
    return [(folder / "log" / f"workerlog.{rank}").read_text() for rank in range(2)]


def saved(folder: Path) -> dict[str, bytes]:
    """Return the files of a folder."""
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def results(folder: Path) -> list[dict]:
    """Return what two workers wrote with --out out."""
    return [json.loads((folder / f"out.{rank}").read_text()) for rank in range(2)]
