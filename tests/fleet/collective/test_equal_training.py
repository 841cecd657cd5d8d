"""N workers on shards of a batch train like one worker on the whole batch, eager and static."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest

import warm_start
from waiting import LIMIT

pytestmark = pytest.mark.slow  # starts jobs or servers

WORKERS = Path(__file__).parent / "workers"


def train(script: str, workers: int, folder: Path, **options: Any) -> dict[str, Any]:
    """Run a script with some workers under fleetrun; return what rank 0 wrote."""
    out = folder / f"{script}.{workers}.json"
    command = [sys.executable, "-m", "fleetx.launch", "--nproc_per_node", str(workers)]
    command += ["--log_dir", str(folder / f"log{workers}"), str(WORKERS / script)]
    command.append(json.dumps({**options, "out": str(out)}))
    environment = warm_start.environment()
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=LIMIT)
    assert done.returncode == 0, done.stdout + done.stderr
    result: dict[str, Any] = json.loads(out.read_text())
    return result


@cache
def alone(script: str, optimizer: str) -> dict[str, Any]:
    """Run a script with one worker, once for all tests that compare with it."""
    with TemporaryDirectory() as folder:
        return train(script, 1, Path(folder), optimizer=optimizer)


def assert_equal(one: dict[str, Any], many: dict[str, Any], tolerance: float) -> None:
    np.testing.assert_allclose(many["losses"], one["losses"], rtol=tolerance)
    for name, values in one["state"].items():
        np.testing.assert_allclose(
            many["state"][name], values, rtol=tolerance, atol=tolerance, err_msg=name
        )


@pytest.mark.parametrize("script", ["train_eager.py", "train_static.py"])
@pytest.mark.parametrize("optimizer", ["sgd", "momentum", "adam"])
def test_two_workers_equal_one(script: str, optimizer: str, tmp_path: Path) -> None:
    many = train(script, 2, tmp_path, optimizer=optimizer)
    assert_equal(alone(script, optimizer), many, 1e-10)


@pytest.mark.parametrize("optimizer", ["sgd", "lazy adam"])
def test_two_workers_with_rows_of_a_table_equal_one(optimizer: str, tmp_path: Path) -> None:
    one = train("train_static.py", 1, tmp_path, optimizer=optimizer, table=True)
    two = train("train_static.py", 2, tmp_path, optimizer=optimizer, table=True)
    assert_equal(one, two, 1e-10)


@pytest.mark.parametrize("reader", ["py_reader", "create_py_reader_by_data"])
def test_two_workers_that_read_from_the_program_equal_one(reader: str, tmp_path: Path) -> None:
    one = train("train_static.py", 1, tmp_path, optimizer="sgd")
    two = train("train_static.py", 2, tmp_path, optimizer="sgd", input=reader)
    assert_equal(one, two, 1e-10)


@pytest.mark.parametrize("script", ["train_eager.py", "train_static.py"])
def test_four_workers_with_synchronised_batch_norm(script: str, tmp_path: Path) -> None:
    options: dict[str, Any] = {"optimizer": "momentum", "batch_norm": True}
    one = train(script, 1, tmp_path, **options)
    many = train(script, 4, tmp_path, **options, strategy={"sync_batch_norm": True})
    assert_equal(one, many, 1e-9)


@pytest.mark.parametrize("script", ["train_eager.py", "train_static.py"])
def test_hierarchical_and_several_communicators(script: str, tmp_path: Path) -> None:
    strategy = {
        "use_hierarchical_allreduce": True,
        "hierarchical_allreduce_inter_nranks": 2,
        "nccl_comm_num": 2,
    }
    many = train(script, 4, tmp_path, optimizer="sgd", strategy=strategy)
    assert_equal(alone(script, "sgd"), many, 1e-10)


@pytest.mark.parametrize("script", ["train_eager.py", "train_static.py"])
def test_half_precision_messages_are_close(script: str, tmp_path: Path) -> None:
    for dtype, within in (("float16", 5e-3), ("bfloat16", 5e-2)):
        strategy = {"fp16_allreduce": True, "fp16_allreduce_dtype": dtype}
        many = train(script, 2, tmp_path, optimizer="sgd", strategy=strategy)
        assert_equal(alone(script, "sgd"), many, within)


def test_minimize_runs_backward_itself(tmp_path: Path) -> None:
    plain = train("train_eager.py", 2, tmp_path, optimizer="sgd")
    short = train("train_eager.py", 2, tmp_path, optimizer="sgd", minimize=True)
    assert plain["losses"] == short["losses"]
    assert plain["lr"] == pytest.approx(0.1 * 0.25)


def test_a_model_of_transformers_trains_unchanged(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    many = train("train_bert.py", 2, tmp_path)
    assert_equal(many["alone"], many, 1e-5)
