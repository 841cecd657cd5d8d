"""The evaluation report: one self-contained HTML file, without scripts or network access.

Verdict and diagnosis come first, then the figures of every output, the distribution of the
differences, and the first samples that differ.
"""

from __future__ import annotations

import os
import time
from html import escape

import fleetx
from fleetx.checkpoint.atomic import write_bytes
from fleetx.evaluation.charts import EQUAL, FINE, OFF, difference_by_place, difference_histogram
from fleetx.evaluation.comparison import Comparison
from fleetx.evaluation.evaluate import Result
from fleetx.evaluation.wording import COLUMNS, cells, number, place
from fleetx.monitor.chart import legend
from fleetx.monitor.page import document, facts_table, row, section, table


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
        f'<p class="quiet">against the saved model {escape(result.model)}</p>',
        _verdict(result, comparison),
        section("What was compared", _facts(result)),
    ]
    if comparison.outputs:
        parts += [section("Outputs", _outputs(comparison)), _charts(comparison)]
    if comparison.first:
        parts.append(section("First samples that differ", _samples(comparison)))
    when = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
    written = f"Written by fleetx evaluate {fleetx.__version__}, {when}."
    parts.append(f'<p class="quiet">{written}</p>')
    return document(f"{word}: {result.url}", "\n".join(parts))


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
    kind = "verdict" if result.same else "verdict slow"
    head = f'<p class="{kind}"><strong>{escape(head)}</strong></p>'
    return f'<section class="wide">{head}{said}{more}</section>'


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
    return facts_table(facts)


def _outputs(comparison: Comparison) -> str:
    differ = COLUMNS.index("differ")
    rows = [
        row(cells(each), off=(1, differ) if each.differing else ())
        for each in comparison.outputs.values()
    ]
    return table(COLUMNS, rows)


def _charts(comparison: Comparison) -> str:
    made = []
    for each in comparison.outputs.values():
        name = escape(each.name)
        made.append(_chart(f"{name}: size of the differences", difference_histogram(each)))
        by_place = difference_by_place(each)
        if by_place:
            made.append(_chart(f"{name}: their place in the vector", by_place))
    kinds = {"equal": EQUAL, "within the tolerance": FINE}
    if any(each.differing for each in comparison.outputs.values()):
        kinds["beyond it, or holds such numbers"] = OFF
    charts = f'<div class="two">{"".join(made)}</div>'
    return section("Distribution of differences", legend([*kinds], [*kinds.values()]) + charts)


def _chart(title: str, drawing: str) -> str:
    return f"<div><h3>{title}</h3>{drawing}</div>"


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
        rows.append(row(texts, off=(len(texts) - 2,)))
    return table(titles, rows)
