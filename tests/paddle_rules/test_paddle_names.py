"""The package paddle: strategies and role makers with Paddle's names, warnings and errors."""

from __future__ import annotations

import os

import numpy as np
import pytest

import paddle
import paddle.distributed.fleet as fleet
from paddle.distributed.fleet.base import role_maker
from paddle.fluid.incubate.fleet.base import role_maker as role_maker_1
from paddle.fluid.incubate.fleet.collective import (
    CollectiveOptimizer,
    DistributedStrategy,
    TrainStatus,
)
from paddle.fluid.incubate.fleet.collective import fleet as fleet_1

pytestmark = pytest.mark.usefixtures("fresh_fleet")


@pytest.fixture(autouse=True)
def _no_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith(("PADDLE_", "SLURM_", "OMPI_")) or name in ("RANK", "TRAINING_ROLE"):
            monkeypatch.delenv(name)


def test_wrong_types_are_warnings_and_keep_the_value(capsys: pytest.CaptureFixture[str]) -> None:
    strategy = fleet.DistributedStrategy()
    strategy.amp = "True"
    strategy.nccl_comm_num = "2"
    assert not strategy.amp
    assert strategy.nccl_comm_num == 1
    said = capsys.readouterr().out
    assert "WARNING: amp should have value of bool type" in said
    assert "WARNING: nccl_comm_num should have value of int type" in said


def test_wrong_types_that_are_errors() -> None:
    strategy = fleet.DistributedStrategy()
    with pytest.raises(ValueError, match="expected type is bool"):
        strategy.a_sync = "True"
    with pytest.raises(TypeError):
        strategy.fp16_allreduce = "True"
    with pytest.raises(ValueError, match="greater than 0"):
        strategy.last_comm_group_size_MB = -1
    with pytest.raises(TypeError, match="is not a attribute of DistributedStrategy"):
        strategy.unknown_key = "UNK"
    with pytest.raises(AssertionError, match="key:speed not in amp_configs"):
        strategy.amp_configs = {"speed": 1}


def test_lists_grow() -> None:
    strategy = fleet.DistributedStrategy()
    strategy.recompute_configs = {"checkpoints": ["a"]}
    strategy.recompute_configs = {"checkpoints": ["b"]}
    assert strategy.recompute_configs["checkpoints"] == ["a", "b"]


def test_auto_acts_only_where_nothing_else_was_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet.DistributedStrategy, "_only_auto_was_set", True)
    strategy = fleet.DistributedStrategy()
    strategy.auto = True
    assert strategy._is_strict_auto()
    fleet.DistributedStrategy().amp_configs = {"incr_ratio": 2.0}
    assert not strategy._is_strict_auto()


@pytest.mark.parametrize(
    ("optimizer", "rows", "k_steps"), [("SGD", 100, 800), ("Adam", 100, 0), ("SGD", 10**10, 0)]
)
def test_auto_with_servers_trains_alone_where_everything_fits(
    optimizer: str, rows: int, k_steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleet.DistributedStrategy, "_only_auto_was_set", True)
    for name, value in {
        "PADDLE_PSERVERS_IP_PORT_LIST": "127.0.0.1:36001,127.0.0.2:36001",
        "PADDLE_TRAINERS_NUM": "2",
        "PADDLE_TRAINER_ID": "0",
        "TRAINING_ROLE": "TRAINER",
    }.items():
        monkeypatch.setenv(name, value)
    paddle.enable_static()
    with paddle.static.program_guard(paddle.static.Program(), paddle.static.Program()):
        fleet.init(role_maker.PaddleCloudRoleMaker())
        x, y = (paddle.fluid.layers.data(name, [1], dtype="int64") for name in "xy")
        emb = paddle.fluid.layers.embedding(x, size=[rows, 10], is_sparse=True)
        out = paddle.fluid.layers.fc(emb, 2, act="softmax")
        loss = paddle.fluid.layers.mean(paddle.fluid.layers.cross_entropy(out, y))
        strategy = fleet.DistributedStrategy()
        strategy.auto = True
        inner = getattr(paddle.fluid.optimizer, optimizer)(learning_rate=0.01)
        fleet.distributed_optimizer(inner, strategy=strategy).minimize(loss)
    assert fleet._final_strategy().a_sync
    assert fleet._final_strategy().a_sync_configs["k_steps"] == k_steps
    assert strategy.a_sync_configs["k_steps"] < 0  # the script's own is left alone


def test_role_makers_of_2_x() -> None:
    role = role_maker.UserDefinedRoleMaker(
        is_collective=True, current_id=1, worker_endpoints=["a:1", "b:1"]
    )
    assert role._is_worker()
    assert (role._worker_index(), role._worker_num(), role._node_num()) == (1, 2, 2)
    assert role._is_collective
    assert role._get_trainer_endpoints() == ["a:1", "b:1"]
    base = role_maker.RoleMakerBase()
    assert base._all_gather(1, "worker") is None
    assert base.get_trainer_endpoints() == []


def test_role_makers_of_1_x(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(KeyError, match="PADDLE_PSERVERS_IP_PORT_LIST"):
        role_maker_1.PaddleCloudRoleMaker().generate_role()
    monkeypatch.setenv("PADDLE_PSERVERS_IP_PORT_LIST", "a:1")
    with pytest.raises(KeyError, match="PADDLE_TRAINERS_NUM"):
        role_maker_1.PaddleCloudRoleMaker().generate_role()
    monkeypatch.setenv("PADDLE_TRAINERS_NUM", "1")
    monkeypatch.setenv("TRAINING_ROLE", "BOSS")
    with pytest.raises(ValueError, match="no valid role of PaddleCloud"):
        role_maker_1.PaddleCloudRoleMaker().generate_role()
    with pytest.raises(ValueError, match="duplicate"):
        role_maker_1.UserDefinedRoleMaker(0, role_maker_1.Role.WORKER, 1, ["a:1", "a:1"])
    assert role_maker_1.UserDefinedCollectiveRoleMaker(0, ["a:1"]).is_first_worker()


def test_addresses_decide_how_many_workers_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PADDLE_TRAINER_ENDPOINTS", "127.0.0.1:36000")
    monkeypatch.setenv("PADDLE_TRAINERS_NUM", "2")
    assert role_maker.PaddleCloudRoleMaker(is_collective=True)._worker_num() == 1


def test_session_of_2_x() -> None:
    fleet.init(is_collective=True)
    assert fleet.util.get_file_shard(["a", "b"]) == ["a", "b"]
    assert fleet.rank() == 0
    assert fleet.metrics.sum(np.array([1.0])).tolist() == [1.0]
    with pytest.warns(UserWarning, match="no effect without a distributed job"):
        fleet.init_worker()
    fleet.init(role_maker.UserDefinedRoleMaker(
        is_collective=True, current_id=0, worker_endpoints=["127.0.0.1:6170"]
    ))  # fmt: skip
    with pytest.raises(ValueError, match="is for jobs with parameter servers"):
        fleet.init_worker()


def test_session_of_1_x(tmp_path) -> None:
    with pytest.raises(TypeError, match="RoleMakerBase"):
        fleet_1.init("worker")
    fleet_1.init(role_maker_1.PaddleCloudRoleMaker(is_collective=True))
    assert fleet_1.worker_endpoints(to_string=True) == "127.0.0.1:6170"
    assert fleet_1.is_first_worker()
    fluid = paddle.fluid
    main, startup = fluid.Program(), fluid.Program()
    names = fluid.unique_name.guard()
    with names, fluid.program_guard(main, startup), fluid.scope_guard(fluid.Scope()):
        x = fluid.layers.data("x", [3])
        loss = fluid.layers.mean(fluid.layers.fc(x, 1))
        optimizer = fleet_1.distributed_optimizer(fluid.optimizer.SGD(0.1), DistributedStrategy())
        assert isinstance(optimizer, CollectiveOptimizer)
        optimizer.minimize(loss)
        executor = fluid.Executor(fluid.CPUPlace())
        executor.run(fleet_1.startup_program)
        feed = {"x": np.ones((4, 3), "float32")}
        (first,) = executor.run(fleet_1.main_program, feed=feed, fetch_list=[loss])
        fleet_1.save_check_point(executor, str(tmp_path), TrainStatus(3))
        (second,) = executor.run(fleet_1._origin_program, feed=feed, fetch_list=[loss])
        status = fleet_1.load_check_point(executor, str(tmp_path), 0)
        (again,) = executor.run(fleet_1.main_program, feed=feed, fetch_list=[loss])
        assert status == TrainStatus(3)
        assert status.next() == 4
        assert first > second == again
        with pytest.raises(AssertionError, match="must be an Executor"):
            fleet_1.save_persistables("executor", str(tmp_path))
        fleet_1.save_persistables(executor, str(tmp_path / "persistables"))
        assert (tmp_path / "persistables" / "fc_0.w_0").is_file()
