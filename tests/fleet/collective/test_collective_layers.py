"""Collective layers in a program that two workers run, forward and backward."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import warm_start
from fleetx import static
from fleetx.static import layers
from fleetx.static.layers import collective
from waiting import LIMIT

SCRIPT = Path(__file__).parent / "workers" / "collective_layers.py"
# What the workers feed.
FIRST = np.array([[1, 2], [3, 4]], "float32")
SECOND = FIRST + 10


@pytest.fixture(scope="module")
def heard(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, np.ndarray]]:
    """What both workers fetched."""
    folder = tmp_path_factory.mktemp("collective")
    command = [sys.executable, "-m", "fleetx.launch", "--nproc_per_node", "2"]
    command += ["--log_dir", str(folder / "log"), str(SCRIPT), str(folder)]
    done = subprocess.run(
        command, env=warm_start.environment(), capture_output=True, text=True, timeout=LIMIT
    )
    assert done.returncode == 0, done.stdout + done.stderr
    texts = [(folder / f"{rank}.json").read_text() for rank in range(2)]
    return [{name: np.array(v) for name, v in json.loads(text).items()} for text in texts]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "first", "second"),
    [
        ("allreduce", SECOND, SECOND),
        ("c_allreduce", FIRST + SECOND, FIRST + SECOND),
        ("c_allgather", np.concatenate([FIRST, SECOND]), np.concatenate([FIRST, SECOND])),
        ("c_reducescatter", (FIRST + SECOND)[:1], (FIRST + SECOND)[1:]),
        ("broadcast", SECOND, SECOND),
        ("c_broadcast", SECOND, SECOND),
        ("all_reduce", FIRST, FIRST),
        ("reduce", FIRST, FIRST + SECOND),
        ("gathered", SECOND, SECOND),
        ("scattered", 2 * FIRST, 3 * FIRST),
        ("c_allreduce_gradient", 4 * (FIRST + SECOND), 4 * (FIRST + SECOND)),
        ("c_allgather_gradient", 4 * FIRST, 4 * SECOND),
        ("c_reducescatter_gradient", 2 * (FIRST + SECOND), 2 * (FIRST + SECOND)),
    ],
)
def test_two_workers(
    name: str, first: np.ndarray, second: np.ndarray, heard: list[dict[str, np.ndarray]]
) -> None:
    np.testing.assert_array_equal(heard[0][name], first)
    np.testing.assert_array_equal(heard[1][name], second)


def test_one_worker_keeps_its_values() -> None:
    with static.program_guard(static.Program(), static.Program()):
        x = layers.data("x", shape=[2, 2], append_batch_size=False)
        parts: list[static.Variable] = []
        collective.all_gather(parts, x)
        fetches = [
            collective.c_allreduce(x),
            collective.c_allgather(x, 1),
            collective.c_reducescatter(x, 1),
            *parts,
        ]
        results = static.Executor().run(feed={"x": FIRST}, fetch_list=fetches)
    assert len(results) == 4
    for result in results:
        np.testing.assert_array_equal(result, FIRST)


def test_refusals() -> None:
    with static.program_guard(static.Program(), static.Program()):
        x = layers.data("x", shape=[3, 2], append_batch_size=False)
        with pytest.raises(TypeError, match="one of sum, prod, max, min, not 'mean'"):
            collective.c_allreduce(x, reduce_type="mean")
        with pytest.raises(ValueError, match="3 is not a multiple of nranks=2"):
            collective.c_reducescatter(x, 2)
        with pytest.raises(ValueError, match="ReduceOp"):
            collective.all_reduce(x, 9)
        with pytest.raises(TypeError, match="number of a communicator"):
            collective.all_reduce(x, group="others")
