"""`paddle.distributed` without Fleet: workers are connected by `init_parallel_env`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import paddle
import warm_start
from waiting import LIMIT

SCRIPT = """
import sys
import numpy as np
import paddle

paddle.enable_static()
paddle.distributed.init_parallel_env()
rank = paddle.distributed.get_rank()
x = paddle.static.data("x", [2, 4], "float32")
table = paddle.nn.initializer.Assign(np.full((4 + 1, 3), 1.0 + rank, "float32"))
ids = paddle.cast(x, "int64")
rows = paddle.distributed.split(
    ids, (8, 3), operation="embedding", num_partitions=2, weight_attr=table
)
paddle.distributed.all_reduce(x)
exe = paddle.static.Executor()
exe.run(paddle.static.default_startup_program())
feed = {"x": np.array([[0, 3, 4, 7], [1, 5, 2, 6]], "float32")}
np.savez(f"{sys.argv[1]}/{rank}.npz", *exe.run(feed=feed, fetch_list=[x, rows]))
"""


@pytest.mark.slow
def test_two_workers_without_fleet(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    command = [sys.executable, "-m", "paddle.distributed.launch", "--nproc_per_node", "2"]
    command += ["--log_dir", str(tmp_path / "log"), str(script), str(tmp_path)]
    done = subprocess.run(
        command, env=warm_start.environment(), capture_output=True, text=True, timeout=LIMIT
    )
    assert done.returncode == 0, done.stdout + done.stderr
    ids = np.array([[0, 3, 4, 7], [1, 5, 2, 6]], "float32")
    for rank in range(2):
        with np.load(tmp_path / f"{rank}.npz") as file:
            total, rows = file["arr_0"], file["arr_1"]
        np.testing.assert_array_equal(total, 2 * ids)
        np.testing.assert_array_equal(rows, np.where(ids < 4, 1.0, 2.0)[..., None].repeat(3, -1))


@pytest.mark.slow
def test_it_needs_no_other_import() -> None:
    code = "import paddle; paddle.distributed.init_parallel_env(); print('connected')"
    root = Path(__file__).resolve().parents[2]
    environment = {**os.environ, **warm_start.torch_variables(root / "src", root / "compat")}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=LIMIT
    )
    assert done.stdout.endswith("connected\n"), done.stderr


@pytest.mark.usefixtures("fresh_fleet")
def test_one_worker_may_call_it_twice() -> None:
    paddle.distributed.init_parallel_env()
    paddle.distributed.init_parallel_env()
    assert paddle.distributed.fleet.worker_num() == 1
