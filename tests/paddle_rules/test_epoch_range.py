"""A loop over epochs resumes where an earlier process of the job stopped."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import warm_start
from fleetx import static
from fleetx.paddle_rules.epoch_range import TrainEpochRange, train_epoch_range
from fleetx.runtime import auto_checkpoint
from fleetx.static import layers
from waiting import LIMIT

SCRIPT = """
import os, sys
import numpy as np
import paddle.fluid as fluid
from paddle.fluid.incubate.checkpoint.auto_checkpoint import train_epoch_range

x = fluid.layers.data("x", [1])
w = fluid.layers.fc(x, 1, bias_attr=False)
loss = fluid.layers.mean(w)
fluid.optimizer.SGD(0.5).minimize(loss)
exe = fluid.Executor()
exe.run(fluid.default_startup_program())
for epoch in train_epoch_range(4, save_checkpoint_inter=0):
    (value,) = exe.run(feed={"x": np.ones((1, 1), "float32")}, fetch_list=[loss])
    print(epoch, float(value[0]), flush=True)
    if epoch == int(sys.argv[1]):
        os._exit(7)
"""


@pytest.mark.slow
def test_a_killed_process_is_continued(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    environment = warm_start.environment(
        PADDLE_RUNNING_ENV=auto_checkpoint.SWITCH,
        PADDLE_JOB_ID="job",
        PADDLE_EDL_HDFS_CHECKPOINT_PATH=str(tmp_path / "checkpoints"),
    )

    def run(stop: int) -> list[list[float]]:
        command = [sys.executable, str(tmp_path / "train.py"), str(stop)]
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=LIMIT
        )
        assert done.returncode == (7 if stop >= 0 else 0), done.stderr
        return [[float(word) for word in line.split()] for line in done.stdout.splitlines()]

    first = run(2)  # epoch 2 has not ended
    assert [epoch for epoch, _ in first] == [0, 1, 2]
    second = run(-1)
    assert [epoch for epoch, _ in second] == [2, 3]
    np.testing.assert_allclose(second[0][1], first[2][1], rtol=1e-6)
    np.testing.assert_allclose(second[1][1], first[2][1] - 0.5, rtol=1e-5)
    assert run(-1) == []


def settings(folder: Path) -> auto_checkpoint.AutoCheckpoint:
    return auto_checkpoint.AutoCheckpoint(str(folder), 900, str(folder / "cache"), "", {})


def test_only_the_last_epoch_is_saved_within_the_interval(
    tmp_path: Path, fresh_graph: None
) -> None:
    loss = layers.mean(layers.fc(layers.data("x", shape=[2]), 1))
    static.optimizer.SGD(0.1).minimize(loss)
    exe = static.Executor()
    exe.run(static.default_startup_program())
    epochs = TrainEpochRange(3, "range", settings(tmp_path))
    assert epochs.restored_from is None
    for _ in epochs.get():
        exe.run(feed={"x": np.ones((1, 2), "float32")}, fetch_list=[loss])
    names = [path.name for path in (tmp_path / "range" / "program_0").iterdir()]
    assert names == ["__paddle_fleet_checkpoint__.0"]
    again = TrainEpochRange(3, "range", settings(tmp_path))
    assert again.restored_from == "CHECKPOINT"
    assert list(again.get()) == []


def test_plain_range_without_the_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PADDLE_RUNNING_ENV", raising=False)
    assert list(train_epoch_range(3)) == [0, 1, 2]


def test_wrong_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PADDLE_RUNNING_ENV", auto_checkpoint.SWITCH)
    monkeypatch.delenv("PADDLE_JOB_ID", raising=False)
    with pytest.raises(ValueError, match="needs PADDLE_JOB_ID"):
        auto_checkpoint.settings()
    monkeypatch.setenv("PADDLE_JOB_ID", "job")
    monkeypatch.setenv("PADDLE_EDL_HDFS_CHECKPOINT_PATH", "/somewhere")
    monkeypatch.setenv("PADDLE_EDL_SAVE_CHECKPOINT_INTER", "soon")
    with pytest.raises(ValueError, match="INTER='soon' must be a number of seconds"):
        auto_checkpoint.settings()
    with pytest.raises(ValueError, match="max_epoch_num must be 0 or more, not -1"):
        TrainEpochRange(-1, "range", settings(tmp_path))
