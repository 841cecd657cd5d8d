"""The evaluation report: one self-contained HTML file, without scripts or network access.

Verdict and diagnosis come first, then the figures of every output, the distribution of the
differences, and the first samples that differ.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from html import escape

import fleetx
from fleetx.checkpoint.atomic import write_bytes
from fleetx.evaluation.charts import difference_by_place, difference_histogram
from fleetx.evaluation.comparison import Comparison
from fleetx.evaluation.evaluate import Result
from fleetx.evaluation.wording import COLUMNS, cells, number, place

_STYLE = """
:root { color-scheme: light dark; --ink: #1c2430; --soft: #5b6675; --line: #dde2e9;
  --page: #f5f7fa; --card: #fff; --good: #18794e; --bad: #c62a2f; --fine: #4b83c9;
  --equal: #9fb3c8; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e9ee; --soft: #9aa5b4; --line: #333b47;
  --page: #14181f; --card: #1c222b; --good: #3fb984; --bad: #f2666b; --fine: #6ea3e8;
  --equal: #56657a; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif; }
main { max-width: 1140px; margin: 0 auto; padding: 28px 20px 48px; }
h1 { font-size: 22px; margin: 0 0 4px; } h2 { font-size: 16px; margin: 28px 0 10px; }
h3 { font-size: 14px; margin: 0 0 6px; }
.soft { color: var(--soft); }
.card { background: var(--card); border: 1px solid var(--line); border-radius: 8px;
  padding: 16px 18px; }
.verdict { border-left: 6px solid var(--good); margin: 16px 0; }
.verdict.bad { border-left-color: var(--bad); }
.verdict strong { font-size: 19px; color: var(--good); } .verdict.bad strong { color: var(--bad); }
.verdict p { margin: 8px 0 0; } .verdict ul { margin: 6px 0 0; padding-left: 20px; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 4px 18px; margin: 0; }
dt { color: var(--soft); } dd { margin: 0; overflow-wrap: anywhere; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: 14px;
  font-variant-numeric: tabular-nums; }
th, td { text-align: right; padding: 6px 8px; border-bottom: 1px solid var(--line);
  white-space: nowrap; }
th { color: var(--soft); font-weight: 600; font-size: 13px; }
tr:last-child td { border-bottom: 0; }
th:first-child, td:first-child { text-align: left; padding-left: 0; }
th:last-child, td:last-child { padding-right: 0; }
td.off { color: var(--bad); font-weight: 600; }
td.id { white-space: normal; overflow-wrap: anywhere; min-width: 180px; }
h3 { overflow-wrap: anywhere; }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(430px, 100%), 1fr));
  gap: 14px; }
svg { width: 100%; height: auto; display: block; }
svg text { font-size: 12.5px; fill: var(--soft); } svg tspan { font-size: 10px; }
.grid { stroke: var(--line); } .axis { stroke: var(--soft); }
rect.fine { fill: var(--fine); } rect.equal { fill: var(--equal); } rect.off { fill: var(--bad); }
.key { display: inline-block; width: 10px; height: 10px; border-radius: 2px; margin: 0 5px 0 12px; }
footer { margin-top: 28px; font-size: 13px; }
"""


def write_report(path: str | os.PathLike[str], result: Result) -> None:
    """Write the report of a comparison."""
    write_bytes(path, report(result).encode())


def report(result: Result) -> str:
    """Return the report of a comparison as HTML."""
    comparison = result.comparison
    if comparison is None:
        raise ValueError("there is nothing to report: no endpoint was compared.")
    word = "Same" if result.same else "Different"
    parts = [
        f"<h1>Evaluation of {escape(str(result.url))}</h1>",
        f'<div class="soft">against the saved model {escape(result.model)}</div>',
        _verdict(result, comparison),
        "<h2>What was compared</h2>",
        _facts(result),
    ]
    if comparison.outputs:
        parts += ["<h2>Outputs</h2>", _outputs(comparison), _charts(comparison)]
    if comparison.first:
        parts += ["<h2>First samples that differ</h2>", _samples(comparison)]
    when = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
    parts.append(
        f'<footer class="soft">Written by fleetx evaluate {fleetx.__version__}, {when}.</footer>'
    )
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{word}: {escape(str(result.url))}</title><style>{_STYLE}</style></head>\n"
        f"<body><main>{''.join(parts)}</main></body></html>\n"
    )


def _verdict(result: Result, comparison: Comparison) -> str:
    if result.same:
        head = f"Same: all {comparison.rows:,} samples agree within the tolerance."
        notes = result.notes
        said = "<p>The endpoint answers as the saved model does.</p>"
    else:
        head = f"Different: {comparison.differing_rows:,} of {comparison.rows:,} samples."
        diagnosis = result.diagnosis
        said = f"<p>{escape(diagnosis.sentence)}</p>" if diagnosis else ""
        notes = diagnosis.notes if diagnosis else []
    items = "".join(f"<li>{escape(note)}</li>" for note in notes)
    more = f"<ul>{items}</ul>" if items else ""
    kind = "verdict" if result.same else "verdict bad"
    return f'<div class="card {kind}"><strong>{escape(head)}</strong>{said}{more}</div>'


def _facts(result: Result) -> str:
    facts = {
        "Endpoint": str(result.url),
        "Version it names": ", ".join(result.versions) or "none",
        "Checksum it names": ", ".join(result.checksums) or "none",
        "Model here": result.model,
        "Version": result.version,
        "Checksum": result.checksum,
        "Samples": f"{result.samples:,}",
        "Time": f"{result.seconds:.1f} s",
    }
    lines = "".join(f"<dt>{name}</dt><dd>{escape(text)}</dd>" for name, text in facts.items())
    return f'<div class="card"><dl>{lines}</dl></div>'


def _row(texts: list[str], *, off: tuple[int, ...] = (), id_at: int | None = None) -> str:
    made = []
    for i, text in enumerate(texts):
        kind = ' class="off"' if i in off else ' class="id"' if i == id_at else ""
        made.append(f"<td{kind}>{escape(text)}</td>")
    return f"<tr>{''.join(made)}</tr>"


def _head(texts: Sequence[str]) -> str:
    return f"<tr>{''.join(f'<th>{escape(text)}</th>' for text in texts)}</tr>"


def _outputs(comparison: Comparison) -> str:
    differ = COLUMNS.index("differ")
    rows = [
        _row(cells(each), off=(1, differ) if each.differing else (), id_at=0)
        for each in comparison.outputs.values()
    ]
    return f'<div class="card scroll"><table>{_head(COLUMNS)}{"".join(rows)}</table></div>'


def _charts(comparison: Comparison) -> str:
    made = []
    for each in comparison.outputs.values():
        name = escape(each.name)
        made.append(_chart(f"{name}: size of the differences", difference_histogram(each)))
        by_place = difference_by_place(each)
        if by_place:
            made.append(_chart(f"{name}: their place in the vector", by_place))
    return (
        f"<h2>Distribution of differences{_legend(comparison)}</h2>"
        f'<div class="charts">{"".join(made)}</div>'
    )


def _legend(comparison: Comparison) -> str:
    kinds = [("equal", "equal"), ("fine", "within the tolerance")]
    if any(each.differing for each in comparison.outputs.values()):
        kinds.append(("bad", "beyond it, or holds such numbers"))
    keys = [
        f'<span class="key" style="background: var(--{colour})"></span>{words}'
        for colour, words in kinds
    ]
    return f'<small class="soft" style="font-weight: 400">{"".join(keys)}</small>'


def _chart(title: str, drawing: str) -> str:
    return f'<div class="card"><h3>{title}</h3>{drawing}</div>'


def _samples(comparison: Comparison) -> str:
    several = len(comparison.outputs) > 1
    titles = ["sample", "row", "largest at", "expected", "answer", "off by", "numbers off"]
    if several:
        titles.insert(1, "output")
    rows = []
    for each in comparison.first:
        texts = [
            each.sample,
            str(each.row),
            place(each.place) or "-",
            f"{each.expected:.7g}",
            f"{each.actual:.7g}",
            number(each.size),
            f"{each.count:,} of {comparison.outputs[each.output].size:,}",
        ]
        if several:
            texts.insert(1, each.output)
        rows.append(_row(texts, off=(len(texts) - 2,), id_at=0))
    return f'<div class="card scroll"><table>{_head(titles)}{"".join(rows)}</table></div>'
