"""The same networks trained here and by real Paddle, from the same parameters on the same data.

One process per engine and network does all its cases, because Paddle is slow to start. The real
Paddle goes first and writes the parameters that its own start-up program made.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from engines import Engine, ours
from scripts.run_cases import NETWORKS, cases

from conftest import Comparison

APIS = {"1.8.5": "fluid", "2.6.2": "static"}
TABLE = [
    pytest.param(version, network, case, id=f"{version}-{network}-{' '.join(case)}")
    for version, api in APIS.items()
    for network in NETWORKS
    for case in cases(api, network)
]
_done: dict[tuple[str, str], tuple[Any, Any]] = {}


@pytest.fixture
def both(
    paddle: Engine, network: str, tmp_path_factory: pytest.TempPathFactory
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Figures of all cases of a network, by real Paddle and here."""
    key = (paddle.name, network)
    if key not in _done:
        folder = tmp_path_factory.mktemp("runs")
        files = []
        for engine in (paddle, ours(paddle.api)):
            files.append(folder / f"{engine.name}.npz")
            engine.run("train_runs.py", network, folder / "parameters", files[-1])
        _done[key] = (_load(files[0]), _load(files[1]))
    return _done[key]


def _load(path: Path) -> dict[str, np.ndarray]:
    with np.load(path) as file:
        return dict(file)


def _of_case(figures: dict[str, np.ndarray], case: tuple[str, ...]) -> dict[str, np.ndarray]:
    """Return the figures of one case; an error of its run is an error of the test."""
    prefix = "|".join(case) + "|"
    found = {k[len(prefix) :]: v for k, v in figures.items() if k.startswith(prefix)}
    assert "error" not in found, str(found["error"])
    return found


@pytest.mark.timeout(1300)
@pytest.mark.parametrize(("paddle", "network", "case"), TABLE, indirect=["paddle"])
def test_same_losses(
    compare: Comparison, both: tuple[Any, Any], network: str, case: tuple[str, ...]
) -> None:
    wanted, found = (_of_case(figures, case) for figures in both)
    assert found.keys() == wanted.keys()
    words = ", ".join(word for word in case if word != "-")
    compare.check(f"{network}: losses", found["losses"], wanted["losses"], case=words, each=True)
    compare.check(
        f"{network}: learning rates", found["rates"], wanted["rates"], 1e-6, case=words, each=True
    )
    for name in wanted:
        if name.startswith("parameter "):
            compare.check(
                f"{network}: parameters at the end", found[name], wanted[name], 1e-4, case=words
            )
    assert wanted["losses"].std() > 1e-4  # something was learnt, or at least changed
