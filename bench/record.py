"""The record of a benchmark: bench/results/<name>.json, with date, machine and command."""

from __future__ import annotations

import json
import os
import platform
import shlex
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parent / "results"


def processor() -> str:
    """Return the name of the CPU; Linux provides more than Python's own function."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except FileNotFoundError:
        pass  # not Linux
    return platform.processor() or platform.machine()


def write_record(name: str, **figures: Any) -> None:
    """Write the figures of one run; `python bench/report.py` copies them to bench/README.md."""
    record = {
        "date": time.strftime("%Y-%m-%d"),
        "command": shlex.join(["python", f"bench/{name}.py", *sys.argv[1:]]),
        "machine": {"cpu": processor(), "cores": os.cpu_count()},
        "python": platform.python_version(),
        "torch": version("torch"),
        **figures,
    }
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}.json").write_text(json.dumps(record, indent=1) + "\n")
