"""Goals of benchmarks and their results, for figures that are not from a contest."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from contest import ROOT


def goal(what: str, value: float, limit: float, *, at_least: bool) -> dict[str, Any]:
    """Return a goal and whether it was reached, rounded to two decimals."""
    reached = round(value, 2) >= limit if at_least else round(value, 2) <= limit
    return {"what": what, "value": value, "goal": limit, "at_least": at_least, "reached": reached}


def show(goals: list[dict[str, Any]]) -> None:
    """Print a line per goal."""
    for row in goals:
        sign = "at least" if row["at_least"] else "at most"
        missed = "" if row["reached"] else ", missed"
        print(f"{row['what']}: {row['value']:.2f} ({sign} {row['goal']:g}{missed})")


def fashion_mnist_parser(text: str | None) -> argparse.ArgumentParser:
    """Return a parser with the common options of trainings on Fashion-MNIST."""
    parser = argparse.ArgumentParser(description=text.splitlines()[0] if text else "")
    parser.add_argument("--seeds", type=int, default=3, help="trainings of each way")
    parser.add_argument("--steps", type=int, default=1400, help="steps of a training")
    parser.add_argument("--mbit", type=float, default=100, help="rate of each machine's link")
    data = ROOT.parent / "shared" / "data" / "fashion-mnist.npz"
    parser.add_argument("--data", type=Path, default=data, help="Fashion-MNIST as one .npz")
    return parser


def parsed(parser: argparse.ArgumentParser) -> argparse.Namespace:
    """Return the options; the data file must exist."""
    options = parser.parse_args()
    if not options.data.exists():
        parser.error(
            f"{options.data} is not there: name a file with train_x, train_y, test_x and test_y of "
            "Fashion-MNIST by --data."
        )
    return options
