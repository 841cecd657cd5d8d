"""The engines a proof compares: real Paddles, each in a Python of its own, and this project."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
SCRIPTS = HERE / "scripts"


@dataclass(frozen=True)
class Engine:
    """A Python in which `import paddle` gives one of the engines."""

    name: str
    python: str
    api: str  # which names the engine has: "fluid" (1.x) or "static" (2.x)
    paths: tuple[str, ...] = ()

    def run(self, script: str, *arguments: object, folder: Path | None = None) -> str:
        """Run one of the scripts; a failure shows the end of what it printed.

        It runs in `folder`, and gets ten minutes: real Paddles are slow on a busy machine.
        """
        command = [self.python, str(SCRIPTS / script), self.api, *map(str, arguments)]
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(self.paths),
            "OMP_NUM_THREADS": "1",
            "GLOG_minloglevel": "2",
        }
        done = subprocess.run(
            command, env=environment, cwd=folder, capture_output=True, text=True, timeout=600
        )
        if done.returncode != 0:
            tail = (done.stdout + done.stderr)[-3000:]
            raise AssertionError(f"{script} failed with {self.name}:\n{tail}")
        return done.stdout


def real(version: str) -> Engine | None:
    """Return a real Paddle if its Python is known: the variable PADDLE185 or PADDLE262 names it."""
    python = os.environ.get("PADDLE" + version.replace(".", ""))
    if not python:
        return None
    return Engine(f"Paddle {version}", python, "fluid" if version.startswith("1.") else "static")


def ours(api: str) -> Engine:
    """Return this project, with the names of one version of Paddle."""
    root = HERE.parent
    return Engine("fleetx", sys.executable, api, (str(root / "src"), str(root / "compat")))
