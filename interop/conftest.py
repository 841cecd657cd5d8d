"""Fixtures of the proofs, the table that ends a run, and the file that keeps its figures."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))

import op_report
from engines import Engine, real

RESULTS = Path(__file__).parent / "results.json"


@dataclass
class Figure:
    """The largest difference in one case of a proof."""

    proof: str
    engine: str
    what: str
    case: str
    difference: float
    limit: float


_figures: dict[tuple[str, str, str, str], Figure] = {}


@pytest.fixture(scope="session", params=["1.8.5", "2.6.2"])
def paddle(request: pytest.FixtureRequest) -> Engine:
    """A real Paddle, one after the other."""
    engine = real(request.param)
    if engine is None:
        variable = "PADDLE" + request.param.replace(".", "")
        pytest.skip(
            f"{variable} does not name a Python with Paddle {request.param}; use make interop"
        )
    return engine


class Comparison:
    """Compares arrays and keeps the largest difference for the table."""

    def __init__(self, proof: str, engine: str) -> None:
        self._proof = proof
        self._engine = engine

    def check(
        self,
        what: str,
        found: np.ndarray,
        wanted: np.ndarray,
        limit: float = 1e-5,
        *,
        case: str = "",
        each: bool = False,
    ) -> None:
        """Fail if the two differ by more than ``limit``, relative to the largest wanted value.

        With ``each``, every value is compared relative to itself.
        """
        assert found.shape == wanted.shape, f"{what}: shape {found.shape}, wanted {wanted.shape}"
        wanted = wanted.astype("float64")
        sizes = np.abs(wanted)
        scale = np.maximum(sizes, 1e-30) if each else max(1.0, float(sizes.max()))
        difference = float((np.abs(found.astype("float64") - wanted) / scale).max())
        key = (self._proof, self._engine, what, case)
        figure = _figures.setdefault(key, Figure(*key, difference, limit))
        figure.difference = max(figure.difference, difference)
        text = f"{what}, {case}" if case else what
        assert difference <= limit, f"{text}: differs by {difference:.3g}, more than {limit:g}"


@pytest.fixture
def compare(paddle: Engine, request: pytest.FixtureRequest) -> Comparison:
    """What compares arrays for the Paddle of this test."""
    return Comparison(request.path.stem, paddle.name)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the table, and what the proof of single ops reports."""
    for title, rows in op_report.lines():
        terminalreporter.section(title)
        for row in rows:
            terminalreporter.write_line(row)
    if not _figures:
        return
    terminalreporter.section("largest differences")
    for each in _figures.values():
        what = f"{each.what}: {each.case}" if each.case else each.what
        terminalreporter.write_line(
            f"{what:<62} {each.engine:<13} {each.difference:9.2e}  (limit {each.limit:g})"
        )


def _is_selection(config: pytest.Config) -> bool:
    """Return whether single tests of a file were asked for."""
    return bool(config.option.keyword) or any("::" in each for each in config.args)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Keep the figures of the proofs that ran whole; those of the others stay."""
    if not _figures or _is_selection(session.config):
        return
    ran = {(each.proof, each.engine) for each in _figures.values()}
    kept = json.loads(RESULTS.read_text()) if RESULTS.exists() else []
    rows = [row for row in kept if (row["proof"], row["engine"]) not in ran]
    groups: dict[tuple[str, str, str], list[Figure]] = {}
    for each in _figures.values():
        groups.setdefault((each.proof, each.engine, each.what), []).append(each)
    for group in groups.values():
        largest = max(group, key=lambda each: each.difference)
        rows.append({**asdict(largest), "cases": len(group)})
    rows.sort(key=lambda row: (row["proof"], row["what"], row["engine"]))
    lines = ",\n".join(" " + json.dumps(row) for row in rows)
    RESULTS.write_text(f"[\n{lines}\n]\n")
