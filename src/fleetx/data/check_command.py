"""The command `fleetx data`: `fleetx data check DIR` checks a whole ImageNet data set.

It prints problems with file and line, then a summary, and exits with status 1 if there are any.
"""

from __future__ import annotations

import argparse
import os
import statistics
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from fleetx.runtime.argument_types import count

if TYPE_CHECKING:
    from rich.progress import Progress

    from fleetx.data.imagenet_check import Findings

INTERRUPTED = 130  # the exit status of shells after Ctrl-C


def add(commands: Any) -> None:
    """Add the command to the parser of `fleetx`."""
    data = commands.add_parser("data", help="inspect data sets")
    actions = data.add_subparsers(required=True, metavar="ACTION")
    check = actions.add_parser("check", help="check an ImageNet data set for errors")
    check.add_argument("folder", type=Path, metavar="DIR", help="the folder with train.txt, train/")
    check.add_argument(
        "--list",
        action="append",
        metavar="FILE",
        dest="lists",
        help="a list in DIR to check; may be repeated; default: train.txt and val.txt",
    )
    check.add_argument(
        "--classes", type=count, default=1000, help="number of labels; default: 1000"
    )
    check.add_argument(
        "--jobs",
        type=count,
        default=os.cpu_count() or 1,
        help="processes; default: one per core",
    )
    check.set_defaults(command=_check)


def _check(arguments: argparse.Namespace, console: Console) -> int:
    from fleetx.data.imagenet_check import checkers, find_lists, open_list

    files = find_lists(arguments.folder, arguments.lists)
    opened = [open_list(file, arguments.classes) for file in files]
    results = [found for _, found in opened]
    try:
        with checkers(arguments.jobs) as pool, _progress(console) as progress:
            for images, found in opened:
                _check_list(images, found, pool, progress)
    except KeyboardInterrupt:
        _summary(results, console)
        console.print("fleetx: interrupted; the figures cover what was checked.", style="red")
        return INTERRUPTED
    _summary(results, console)
    return 1 if any(found.problems for found in results) else 0


def _check_list(images: Any, found: Findings, pool: Any, progress: Progress) -> None:
    from fleetx.data.imagenet_check import check_images

    def show(problem: Any) -> None:
        progress.console.print(str(problem), markup=False, highlight=False, soft_wrap=True)

    for problem in found.problems:
        show(problem)
    task = progress.add_task(found.file.name, total=found.lines, rate="")
    for each in check_images(images, pool):
        before = len(found.problems)
        found.add(each)
        for problem in found.problems[before:]:
            show(problem)
        speed = progress.tasks[task].speed
        progress.update(task, advance=1, rate=f"{speed:.0f} images/s" if speed else "")


def _progress(console: Console) -> Progress:
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(),
        console=console,
        transient=True,
    )


def _summary(results: list[Findings], console: Console) -> None:
    table = Table(show_header=True)
    for heading in ("", *(found.file.name for found in results)):
        table.add_column(heading, justify="right" if heading else "left")
    rows: dict[str, list[str]] = {
        "images listed": [f"{found.lines:,}" for found in results],
        "images read": [f"{found.images:,}" for found in results],
        "classes": [f"{len(found.classes):,}" for found in results],
        "MB": [f"{found.bytes / 1e6:,.1f}" for found in results],
        "widths": [_range(found.widths) for found in results],
        "heights": [_range(found.heights) for found in results],
        "colours": [_counts(found.colours) for found in results],
        "problems": [f"{len(found.problems):,}" for found in results],
    }
    kinds = sorted({problem.kind for found in results for problem in found.problems})
    for kind in kinds:
        numbers = [sum(p.kind == kind for p in found.problems) for found in results]
        rows[f"  {kind}"] = [f"{number:,}" for number in numbers]
    for name, cells in rows.items():
        table.add_row(name, *cells)
    console.print(table)


def _range(sizes: list[int]) -> str:
    if not sizes:
        return ""
    return f"{min(sizes)} to {max(sizes)}, median {statistics.median(sizes):.0f}"


def _counts(counts: Counter[str]) -> str:
    return ", ".join(f"{name} {number:,}" for name, number in counts.most_common())
