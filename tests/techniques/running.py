"""Runs a worker script under fleetrun and reads what its workers wrote."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import warm_start
from waiting import LIMIT

WORKERS = Path(__file__).parent / "workers"


OWN_TECHNIQUES = Path(__file__).parents[2] / "examples" / "own_technique"


def run(
    script: str,
    folder: Path,
    *arguments: str,
    workers: int = 2,
    flags: Sequence[str] = (),
    limit: float = LIMIT,
) -> list[dict[str, Any]]:
    """Return what each worker of a script wrote to `<folder>/<rank>.json`.

    Workers can import the techniques of the example. `flags` are those of fleetrun; `limit` is
    there to end a hang.
    """
    command = [sys.executable, "-m", "fleetx.launch", "--nproc_per_node", str(workers)]
    command += ["--log_dir", str(folder / "log"), *flags]
    command += [str(WORKERS / script), str(folder), *arguments]
    environment = warm_start.environment()
    environment["PYTHONPATH"] += f"{os.pathsep}{OWN_TECHNIQUES}"
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=limit)
    assert done.returncode == 0, done.stdout + done.stderr
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(workers)]
