"""The commands `fleetx report` and `fleetx timeline`, which analyse the log folder of a run."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from rich.console import Console


def add(commands: Any) -> None:
    """Add the commands to the parser of `fleetx`."""
    report = commands.add_parser("report", help="write the report of a run")
    report.add_argument("log_dir", type=Path, help="the folder given to fleetrun --log_dir")
    report.add_argument("--out", type=Path, help="the report; default: LOG_DIR/report.html")
    report.set_defaults(command=_report)
    timeline = commands.add_parser("timeline", help="merge the timelines of all workers")
    timeline.add_argument("log_dir", type=Path, help="the folder with timeline.N.jsonl")
    timeline.add_argument("--out", type=Path, help="the trace; default: LOG_DIR/timeline.json")
    timeline.set_defaults(command=_timeline)


def _report(arguments: argparse.Namespace, console: Console) -> int:
    from fleetx.monitor.analysis import straggler, summarise
    from fleetx.monitor.files import timeline_files
    from fleetx.monitor.report import write_report
    from fleetx.monitor.trace import write_trace

    target, run = write_report(arguments.log_dir, arguments.out)
    problems = list(run.problems)
    if timeline_files(arguments.log_dir):
        problems += write_trace(arguments.log_dir)[1]
    _print_all(console, problems)
    workers = [summarise(worker) for worker in run.workers if worker.records]
    _print_all(console, [straggler(workers)[1], str(target)])
    return 0


def _timeline(arguments: argparse.Namespace, console: Console) -> int:
    from fleetx.monitor.trace import write_trace

    target, problems = write_trace(arguments.log_dir, arguments.out)
    _print_all(console, [*problems, f"{target}: open it in https://ui.perfetto.dev"])
    return 0


def _print_all(console: Console, lines: list[str]) -> None:
    for line in lines:
        console.print(line, markup=False, highlight=False, soft_wrap=True)
