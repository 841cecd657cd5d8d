"""GradAllReduce and LocalSGD of Paddle 1.x: programs that a script rewrites itself."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import paddle.fluid as fluid
import warm_start
from fleetx import comm
from paddle.fluid.transpiler.collective import GradAllReduce, LocalSGD
from waiting import LIMIT

SCRIPT = Path(__file__).parent / "workers" / "collective_by_hand.py"
TWO = "127.0.0.1:36101,127.0.0.1:36102"


def gradient(weights: np.ndarray, rank: int, step: int) -> np.ndarray:
    batch = np.array([[1.0, 2.0], [0.5, -1.0]]) * (1 + rank + step)
    return batch.T @ (batch @ weights - 1.0)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["grads", "params"])
def test_two_workers_train_as_one(kind: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "fleetx.launch", "--nproc_per_node", "2"]
    command += ["--log_dir", str(tmp_path / "log"), str(SCRIPT), kind, str(tmp_path)]
    done = subprocess.run(
        command, env=warm_start.environment(), capture_output=True, text=True, timeout=LIMIT
    )
    assert done.returncode == 0, done.stdout + done.stderr
    first, second = (json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2))
    assert first == second
    # One step of SGD from equal parameters: averages of gradients and of parameters are the same.
    weights = np.array(first[0])
    for step, after in enumerate(first[1:]):
        weights = weights - 0.1 * (gradient(weights, 0, step) + gradient(weights, 1, step)) / 2
        np.testing.assert_allclose(after, weights, rtol=1e-5)


@pytest.mark.parametrize(
    ("rank", "endpoints", "own", "sentence"),
    [
        (0, "127.0.0.1:36101", "127.0.0.1:36101", "needs at least 2 endpoints"),
        (2, TWO, "127.0.0.1:36101", "rank is 2: it must be from 0 to 1"),
        (0, TWO, "127.0.0.1:1", "'127.0.0.1:1' is not among"),
    ],
)
def test_places_that_cannot_be(rank: int, endpoints: str, own: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        GradAllReduce().transpile(None, None, rank, endpoints, own, False)


def test_a_program_without_updates_is_refused() -> None:
    program = fluid.Program()
    try:
        with pytest.raises(ValueError, match="has no updates: call optimizer.minimize"):
            LocalSGD().transpile(fluid.Program(), program, 0, TWO, "127.0.0.1:36101")
    finally:
        comm.cancel_meeting()
