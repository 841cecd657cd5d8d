"""The report of a run: one self-contained HTML file, in light or dark mode.

It shows curves of loss, throughput and communication, the busy time of each worker and the
straggler, the composed strategy, and facts of the job.
"""

from __future__ import annotations

import math
import shlex
import time
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

from fleetx.checkpoint import atomic
from fleetx.monitor.analysis import (
    Bins,
    WorkerSummary,
    milliseconds,
    straggler,
    summarise,
)
from fleetx.monitor.chart import Series, bars, legend, line_chart, number
from fleetx.monitor.files import PAGE
from fleetx.monitor.page import document, facts_table, row, section, table
from fleetx.monitor.progress import duration
from fleetx.monitor.run_folder import RunFolder, read_run

_MOST_BARS = 32
_MOST_LINES = 6


def write_report(folder: Path, target: Path | None = None) -> tuple[Path, RunFolder]:
    """Write the report of a log folder; return its path and the run that was read."""
    run = read_run(folder)
    target = folder / PAGE if target is None else target
    atomic.write_bytes(target, page(run).encode())
    return target, run


def page(run: RunFolder) -> str:
    """Return the HTML page of a run."""
    workers = [summarise(worker) for worker in run.workers if worker.records]
    bins = Bins(run.workers)
    who, sentence = straggler(workers)
    name = Path(str((run.facts.get("command") or ["run"])[0])).name
    parts = [
        f"<h1>{escape(name)}</h1>",
        f'<p class="quiet">{escape(_when(run))}</p>',
        _problems(run.problems),
        _tiles(run, workers, bins),
        _curves(bins, _busiest(workers)),
        _worker_section(bins, workers, who, sentence),
        _strategy(run.facts.get("strategy")),
        _facts(run),
    ]
    body = "\n".join(part for part in parts if part)
    return document(f"{name} – FleetX report", body, '<link rel="icon" href="data:,">')


def _when(run: RunFolder) -> str:
    times = [r.time for worker in run.workers for r in worker.records]
    if not times:
        return f"{run.path}: no steps were recorded."
    began = min(worker.records[0].time - worker.records[0].seconds for worker in run.workers
                if worker.records)  # fmt: skip
    clock = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(began))
    return f"Started {clock}, trained for {duration(max(times) - began)}; read from {run.path}"


def _problems(problems: Sequence[str]) -> str:
    if not problems:
        return ""
    items = "".join(f"<li>{escape(problem)}</li>" for problem in problems)
    return f'<ul class="problems">{items}</ul>'


def _tiles(run: RunFolder, workers: Sequence[WorkerSummary], bins: Bins) -> str:
    if not workers:
        return ""
    loss, throughput = bins.loss(), bins.throughput()
    total = sum(w.seconds * w.steps for w in workers) or 1.0
    share = sum(w.communication_share * w.seconds * w.steps for w in workers) / total
    data = sum(w.data_share * w.seconds * w.steps for w in workers) / total
    tiles = [
        ("workers", str(run.facts.get("workers") or len(workers))),
        ("steps", f"{max(w.steps for w in workers):,}"),
        ("samples", _count(sum(w.samples for w in workers))),
        ("last loss", f"{loss[-1][1]:.4g}" if loss else "unknown"),
        ("samples per second", number(_typical(throughput)) if throughput else "unknown"),
        ("time per step", milliseconds(max(w.seconds for w in workers))),
        ("communication", f"{share:.0%}"),
        ("waiting for data", f"{data:.0%}"),
    ]
    cells = "".join(f"<div><b>{escape(v)}</b><span>{k}</span></div>" for k, v in tiles)
    return f'<div class="tiles">{cells}</div>'


def _count(value: int) -> str:
    return f"{value:,}" if value < 1_000_000 else f"{value / 1e6:,.2f} M"


def _typical(curve: Sequence[tuple[float, float]]) -> float:
    values = sorted(value for _, value in curve)
    return values[len(values) // 2]


def _busiest(workers: Sequence[WorkerSummary], count: int = _MOST_LINES) -> list[WorkerSummary]:
    """Return the workers to draw if there are many, sorted by rank."""
    return sorted(sorted(workers, key=lambda w: -w.busy)[:count], key=lambda w: w.rank)


def _by_worker(series: Sequence[Series], label: str) -> str:
    chart = line_chart(series, label=label, unit=" ms", from_zero=True, crops=True)
    return legend([each.name for each in series]) + chart


def _curves(bins: Bins, shown: Sequence[WorkerSummary]) -> str:
    loss = bins.loss()
    bad = next((step for step, value in loss if not math.isfinite(value)), None)
    note = "" if bad is None else f"<p>The loss is not a number at step {number(bad)}.</p>"
    loss_text = (
        line_chart([Series("", loss)], label="loss over steps")
        if loss
        else '<p class="empty">The loss is unknown: call monitor.note(loss=loss), or '
        "optimizer.minimize(loss).</p>"
    )
    rate = line_chart([Series("", bins.throughput())], label="samples per second", from_zero=True)
    share = line_chart(
        [Series("", bins.communication())], label="communication share", unit="%", from_zero=True
    )
    times = [Series(f"worker {w.rank}", bins.seconds(w.rank)) for w in shown]
    width = "" if bins.width == 1 else f" Points are means over {bins.width} steps."
    return (
        f'<section><h2>Loss</h2><p class="quiet">Mean over workers.{width}</p>{note}{loss_text}'
        "</section>"
        '<section><h2>Throughput</h2><p class="quiet">Samples per second of all workers '
        f"together.</p>{rate}</section>"
        '<section><h2>Communication</h2><p class="quiet">Share of time in which workers wait for '
        f"each other or for servers; communication that overlaps backward is free.</p>{share}"
        "</section>"
        '<section><h2>Time per step</h2><p class="quiet">Including waits: workers in lockstep all '
        f"take the same time.</p>{_by_worker(times, 'time per step by worker')}</section>"
    )


def _worker_section(
    bins: Bins, workers: Sequence[WorkerSummary], who: int | None, sentence: str
) -> str:
    if not workers:
        return ""
    kind = "verdict slow" if who is not None else "verdict"
    shown = _busiest(workers)
    series = [Series(f"worker {w.rank}", bins.busy(w.rank)) for w in shown]
    which = (
        ""
        if len(workers) <= _MOST_LINES
        else f" The {_MOST_LINES} busiest of {len(workers)} workers."
    )
    names = ("computing", "waiting for data", "waiting for others")
    rows = [
        (f"worker {w.rank}", [1000 * w.compute, 1000 * w.data, 1000 * w.wait])
        for w in _busiest(workers, _MOST_BARS)
    ]
    return (
        f'<section class="wide"><h2>Workers</h2><p class="{kind}">{escape(sentence)}</p>'
        '<div class="two"><div><h3>A step, median</h3>'
        f"{legend(names)}{bars(rows, names, label='parts of a step by worker')}</div>"
        f'<div><h3>Busy per step</h3><p class="quiet">Without waiting for others.{which}</p>'
        f"{_by_worker(series, 'busy time per step by worker')}"
        f"</div></div>{_worker_table(workers, who)}</section>"
    )


def _worker_table(workers: Sequence[WorkerSummary], who: int | None) -> str:
    heads = ("worker", "machine", "steps", "samples", "step", "slowest 5% of steps", "busy",
             "waits for data", "waits for others")  # fmt: skip
    rows = []
    for w in workers:
        cells = (
            str(w.rank),
            w.host,
            f"{w.steps:,}",
            f"{w.samples:,}",
            milliseconds(w.seconds),
            f"over {milliseconds(w.slow_seconds)}",
            milliseconds(w.busy),
            f"{w.data_share:.1%}",
            f"{w.communication_share:.1%}",
        )
        rows.append(row(cells, "slow" if w.rank == who else ""))
    return table(heads, rows)


def _strategy(strategy: Any) -> str:
    if not isinstance(strategy, list) or not strategy:
        text = '<p class="empty">The strategy of this run was not recorded.</p>'
    else:
        fields = ("stage", "technique", "settings", "sent", "memory")
        rows = [
            row([str(part.get(name, "")) for name in fields])
            for part in strategy
            if isinstance(part, dict)
        ]
        heads = ("stage", "technique", "settings", "sent per step", "memory")
        text = table(heads, rows)
    return section("The composed step", text)


def _facts(run: RunFolder) -> str:
    facts = run.facts
    command = facts.get("command")
    hosts = list(dict.fromkeys(worker.host for worker in run.workers if worker.host))
    known = {
        "command": shlex.join(map(str, command)) if isinstance(command, list) else None,
        "machines": ", ".join(hosts) or None,
        "FleetX": facts.get("fleetx"),
        "PyTorch": facts.get("torch"),
        "Python": facts.get("python"),
        "CUDA": facts.get("cuda"),
        "threads of worker 0": facts.get("threads"),
    }
    return section("The job", facts_table({k: str(v) for k, v in known.items() if v is not None}))
