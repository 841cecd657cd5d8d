"""The static-graph engine against hand-written eager PyTorch and real Paddles, all in one run.

    python bench/static_graph.py [--rounds 9] [--skip-resnet]

Real Paddles take part if the variables PADDLE185, PADDLE262 and PADDLE331 name a Python that has
them. Figures go to bench/results/static_graph.json.
"""

from __future__ import annotations

import argparse
import os
from typing import Any

from contest import Contestant, contest, ratio
from record import write_record
from rich.console import Console
from rich.table import Table


def real_paddles(script: str, versions: tuple[str, ...]) -> list[Contestant]:
    """Return the real Paddles whose Python is known."""
    found = []
    for version in versions:
        python = os.environ.get("PADDLE" + version.replace(".", ""))
        if python:
            found.append(Contestant(f"Paddle {version}", script, python, ours=False))
    return found


def mlp(rounds: int) -> list[dict[str, Any]]:
    """Measure steps per second of the documents' MLP, batch 128, one thread."""
    ours = Contestant("fleetx", "mlp_fluid.py")
    compiled = Contestant("fleetx, compiled", "mlp_fluid.py", arguments=("compile",))
    eager = Contestant("eager PyTorch", "mlp_eager.py")
    paddles = real_paddles("mlp_fluid.py", ("1.8.5",)) + real_paddles(
        "mlp_static.py", ("2.6.2", "3.3.1")
    )
    contest([ours, eager, compiled, *paddles], steps=300, rounds=rounds)
    rows = [row("MLP steps/s", ours, eager, 1.2), row("MLP steps/s", compiled, eager, 1.5)]
    return rows + [row("MLP steps/s", ours, other, 2.2) for other in paddles]


def resnet(rounds: int) -> list[dict[str, Any]]:
    """Measure images per second, build time and memory of ResNet-50."""
    ours = Contestant("fleetx", "resnet_static.py")
    eager = Contestant("eager PyTorch", "resnet_eager.py")
    paddles = real_paddles("resnet_static.py", ("2.6.2", "3.3.1"))
    contest([ours, eager, *paddles], steps=1, rounds=rounds)
    goals = {"eager PyTorch": 0.98, "Paddle 2.6.2": 1.15, "Paddle 3.3.1": 1.0}
    rows = [
        row("ResNet-50 images/s", ours, other, goals[other.name], scale=8)
        for other in (eager, *paddles)
    ]
    for other in paddles:
        if other.name == "Paddle 2.6.2":
            for fact, what in (
                ("first_build_seconds", "ResNet-50 building, first, seconds"),
                ("build_seconds", "ResNet-50 building, again, seconds"),
            ):
                mine, theirs = ours.facts[fact], other.facts[fact]
                rows.append(figures(what, mine, other.name, theirs, 1.0, False))
    mine, theirs = (c.facts["peak_mb"] - c.facts["before_mb"] for c in (ours, eager))
    rows.append(figures("ResNet-50 step, MB above imports", mine, eager.name, theirs, 1.05, False))
    return rows


def row(
    what: str, ours: Contestant, other: Contestant, goal: float, scale: int = 1
) -> dict[str, Any]:
    """Return a row of the table for two rates; higher is better."""
    line = figures(what, ours.rate * scale, other.name, other.rate * scale, goal, True)
    line.update(ratio=ratio(ours, other), ours_name=ours.name)
    return line


def figures(
    what: str, mine: float, name: str, theirs: float, goal: float, higher: bool
) -> dict[str, Any]:
    """Return a row of the table."""
    return {
        "what": what,
        "ours_name": "fleetx",
        "ours": mine,
        "peer_name": name,
        "peer": theirs,
        "ratio": mine / theirs,
        "goal": goal,
        "higher_is_better": higher,
    }


def show(rows: list[dict[str, Any]], title: str) -> None:
    """Print the table."""
    table = Table(title=title)
    for heading in ("what", "ours", "figure", "against", "figure", "ratio", "goal"):
        table.add_column(
            heading, justify="left" if heading in ("what", "ours", "against") else "right"
        )
    for line in rows:
        reached = (line["ratio"] >= line["goal"]) == line["higher_is_better"]
        table.add_row(
            line["what"],
            line["ours_name"],
            f"{line['ours']:.4g}",
            line["peer_name"],
            f"{line['peer']:.4g}",
            f"[{'green' if reached else 'red'}]{line['ratio']:.2f}x[/]",
            f"{'>=' if line['higher_is_better'] else '<='} {line['goal']}x",
        )
    Console().print(table)


def main() -> None:
    """Run all contests, print the table and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rounds", type=int, default=9, help="turns of each contestant")
    parser.add_argument("--skip-resnet", action="store_true", help="only the MLP")
    options = parser.parse_args()
    rows = mlp(options.rounds)
    if not options.skip_resnet:
        rows += resnet(max(3, options.rounds // 2))
    show(rows, "Static graph: this project against its peers")
    write_record("static_graph", rows=rows)


if __name__ == "__main__":
    main()
