"""Fixtures of the proofs, and the table that ends a run."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))

from engines import Engine, real  # noqa: E402

# (what, engine) -> largest difference, limit
_rows: dict[tuple[str, str], tuple[float, float]] = {}


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

    def __init__(self, engine: str) -> None:
        self._engine = engine

    def check(self, what: str, found: np.ndarray, wanted: np.ndarray, limit: float = 1e-5) -> None:
        """Fail if the two differ by more than ``limit``, relative to the largest wanted value."""
        assert found.shape == wanted.shape, f"{what}: shape {found.shape}, wanted {wanted.shape}"
        scale = max(1.0, float(np.abs(wanted).max()))
        difference = float(np.abs(found.astype("float64") - wanted.astype("float64")).max()) / scale
        key = (what, self._engine)
        _rows[key] = (max(difference, _rows.get(key, (0.0, 0.0))[0]), limit)
        assert difference <= limit, f"{what}: differs by {difference:.3g}, more than {limit:g}"


@pytest.fixture
def compare(paddle: Engine) -> Comparison:
    """What compares arrays for the Paddle of this test."""
    return Comparison(paddle.name)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the table."""
    if not _rows:
        return
    terminalreporter.section("largest differences")
    for (what, engine), (difference, limit) in _rows.items():
        terminalreporter.write_line(f"{what:<52} {engine:<13} {difference:9.2e}  (limit {limit:g})")
