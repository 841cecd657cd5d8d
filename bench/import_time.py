"""Import times, each in fresh processes, interleaved, median of several.

`import fleetx` alone loads nothing heavy; `import fleetx.static` is the one to compare with
`import torch`, because it loads PyTorch and the whole engine.

    python bench/import_time.py [--rounds 7]
"""

import argparse
import os
import statistics
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from record import write_record
from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parent.parent
BASELINE = "torch"
MODULES = (BASELINE, "fleetx", "fleetx.static", "paddle")
# With bytecode, as after any installation: if the shell disables it, all sources but PyTorch's
# would be compiled at every start.
ENVIRONMENT = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}


def seconds(module: str) -> float:
    """Time one import in a new interpreter, without the interpreter's own startup."""
    code = (
        "import time; start = time.perf_counter(); "
        f"import {module}; print(time.perf_counter() - start)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=ENVIRONMENT, check=True, capture_output=True, text=True
    )
    return float(done.stdout)


def available(module: str) -> bool:
    """Return whether the module can be found, without importing it."""
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def measure(rounds: int) -> dict[str, list[float]]:
    """Import every module once per round, so that drift of the machine affects all equally."""
    modules = [module for module in MODULES if available(module)]
    for module in modules:  # writes bytecode and fills the disk cache
        seconds(module)
    times: dict[str, list[float]] = {module: [] for module in modules}
    for _ in range(rounds):
        for module in modules:
            times[module].append(seconds(module))
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7, help="imports of each module")
    rounds = parser.parse_args().rounds
    times = measure(rounds)
    base = statistics.median(times[BASELINE])
    table = Table("import", "median s", "min s", "max s", f"to {BASELINE}")
    rows = {}
    for module, values in times.items():
        middle = statistics.median(values)
        rows[module] = {
            "median_s": round(middle, 4),
            "min_s": round(min(values), 4),
            "max_s": round(max(values), 4),
            "ratio_to_torch": round(middle / base, 3),
        }
        figures = (middle, min(values), max(values))
        table.add_row(module, *(f"{v:.3f}" for v in figures), f"{middle / base:.2f}x")
    Console().print(table)
    write_record("import_time", rounds=rounds, imports=rows)


if __name__ == "__main__":
    main()
