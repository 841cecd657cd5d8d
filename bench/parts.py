"""Benchmarks of several parts, each of which can be run on its own (`--only`).

Figures of parts that were not run again are kept; each part records its date and the load of the
machine when it started, which indicates how reliable a ratio is.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

from namespaces import NoNamespacesError
from record import RESULTS, write_record
from static_graph import show

Part = Callable[[], list[dict[str, Any]]]


def parts_parser(text: str | None, rounds: int) -> argparse.ArgumentParser:
    """Return a parser with the common options; `text` is the docstring of the benchmark."""
    parser = argparse.ArgumentParser(description=text.splitlines()[0] if text else "")
    parser.add_argument("--rounds", type=int, default=rounds, help="turns of each contestant")
    parser.add_argument("--only", default="", help="parts to run, joined by commas")
    return parser


def run_parts(
    name: str, title: str, parts: Mapping[str, Part], parser: argparse.ArgumentParser
) -> None:
    """Run the parts selected on the command line, print the table and write all figures."""
    only = parser.parse_args().only
    wanted = only.split(",") if only else list(parts)
    unknown = [part for part in wanted if part not in parts]
    if unknown:
        parser.error(f"--only knows {', '.join(parts)}, not {unknown[0]!r}.")
    path = RESULTS / f"{name}.json"
    before: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    rows: list[dict[str, Any]] = []
    runs: dict[str, Any] = {}
    for part, run in parts.items():
        if part in wanted:
            begun = {"date": time.strftime("%Y-%m-%d"), "load": round(os.getloadavg()[0], 1)}
            try:
                found = [{"part": part, **line} for line in run()]
                rows, runs[part] = rows + found, begun
                continue
            except NoNamespacesError as error:
                print(f"{part} is left out: {error}", file=sys.stderr)
        rows += [line for line in before.get("rows", []) if line.get("part") == part]
        runs.update({k: v for k, v in before.get("parts", {}).items() if k == part})
    show(rows, title)
    write_record(name, rows=rows, parts=runs)
