"""A barrier through a folder, on the `hadoop` of the tests."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from paddle.fluid.incubate.fleet.utils.fleet_barrier_util import check_all_trainers_ready

HADOOP = Path(__file__).parents[1] / "checkpoint" / "hadoop"


def test_waits_for_all_workers_of_the_epoch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "hadoop").symlink_to(HADOOP)
    ready = tmp_path / "ready"
    ready.mkdir()
    (ready / "ready.6.0.done").touch()  # left by an earlier epoch
    monkeypatch.setenv("HADOOP_HOME", str(home))
    monkeypatch.setenv("PADDLE_TRAINERS_NUM", "2")
    monkeypatch.setenv("PADDLE_TRAINER_ID", "0")
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(check_all_trainers_ready, str(ready), 7)
        (ready / "ready.7.1.done").touch()  # the other worker
        waiting.result()
    assert sorted(path.name for path in ready.iterdir()) == [
        *("ready.6.0.done", "ready.7.0.done", "ready.7.1.done"),
    ]


def test_hdfs_has_to_be_set_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HADOOP_HOME", raising=False)
    with pytest.raises(RuntimeError, match="set HADOOP_HOME to the folder with bin/hadoop"):
        check_all_trainers_ready("/ready", 0)


def test_a_worker_that_never_comes_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "hadoop").symlink_to(HADOOP)
    monkeypatch.setenv("HADOOP_HOME", str(tmp_path))
    monkeypatch.setenv("PADDLE_TRAINERS_NUM", "3")
    monkeypatch.setenv("PADDLE_TRAINER_ID", "1")
    monkeypatch.setenv("FLEETX_BARRIER_SECONDS", "1")
    ready = tmp_path / "ready"
    with pytest.raises(TimeoutError, match=r"2 of 3 workers \(0, 2\) left no mark for epoch 4 in"):
        check_all_trainers_ready(str(ready), 4)
    monkeypatch.setenv("FLEETX_BARRIER_SECONDS", "soon")
    with pytest.raises(ValueError, match="FLEETX_BARRIER_SECONDS"):
        check_all_trainers_ready(str(ready), 4)
