"""Recomputation on a deep network: memory and time against training without it and against
torch.utils.checkpoint written into the model by hand.

    python bench/recompute.py [--rounds 9]

24 residual blocks (128 -> 512 -> 128), batch 2048, a checkpoint per block, one thread. Time: all
contestants take turns. Memory: each alone in its own process, which returns freed blocks to the
system immediately; the figure is the peak resident memory above that after the imports, including
parameters, gradients and everything else. Figures go to bench/results/recompute.json.
"""

from __future__ import annotations

import argparse
from typing import Any

from contest import Contestant, contest, ratio
from record import write_record
from static_graph import figures, show

KINDS = {
    "eager PyTorch": ("deep_eager.py", "plain"),
    "torch.utils.checkpoint by hand": ("deep_eager.py", "hand"),
    "fleetx, eager, recompute": ("deep_eager.py", "fleet"),
    "fleetx, static": ("deep_static.py", "plain"),
    "fleetx, static, recompute": ("deep_static.py", "fleet"),
}
# The pairs to compare, with limits of memory and time.
PAIRS = (
    ("fleetx, eager, recompute", "eager PyTorch", 0.5, 1.4),
    ("fleetx, eager, recompute", "torch.utils.checkpoint by hand", 1.05, 1.05),
    ("fleetx, static, recompute", "fleetx, static", 0.5, 1.4),
    ("fleetx, static, recompute", "eager PyTorch", 0.5, 1.4),
    ("fleetx, static, recompute", "torch.utils.checkpoint by hand", 1.05, 1.05),
)


def contestants(*more: str) -> dict[str, Contestant]:
    """Return all contestants by name."""
    return {
        name: Contestant(name, script, arguments=(kind, *more))
        for name, (script, kind) in KINDS.items()
    }


def peaks(*more: str) -> dict[str, float]:
    """Return the memory in MB that each needs above its imports, one after another."""
    found = {}
    for name, each in contestants(*more).items():
        contest([each], steps=2, rounds=1)
        found[name] = each.facts["peak_mb"] - each.facts["before_mb"]
    return found


def times(rounds: int) -> dict[str, Contestant]:
    """Return the contestants after they have taken turns."""
    everyone = contestants()
    contest(list(everyone.values()), steps=2, rounds=rounds)
    return everyone


def rows(needed: dict[str, float], raced: dict[str, Contestant]) -> list[dict[str, Any]]:
    """Return the rows of the table."""
    lines = []
    for name, other, memory, _ in PAIRS:
        line = figures("step, MB above imports", needed[name], other, needed[other], memory, False)
        lines.append({**line, "ours_name": name})
    for name, other, _, time in PAIRS:
        mine, theirs = raced[name], raced[other]
        line = figures("seconds per step", 1 / mine.rate, other, 1 / theirs.rate, time, False)
        lines.append({**line, "ours_name": name, "ratio": ratio(theirs, mine)})
    return lines


def main() -> None:
    """Measure, print the table and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rounds", type=int, default=9, help="turns of each contestant")
    options = parser.parse_args()
    lines = rows(peaks("memory"), times(options.rounds))
    show(lines, "Recomputation on a deep network")
    write_record("recompute", rows=lines)


if __name__ == "__main__":
    main()
