"""The programs of DistributeTranspiler have the ops that Paddle 1.8 writes, in its order.

The lists were taken from Paddle 1.8.5.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from leftovers import end_sessions

fluid = pytest.importorskip("paddle.fluid")

FORWARD = ["mul", "elementwise_add", "elementwise_sub", "square", "mean", "fill_constant"]
BACKWARD = ["mean_grad", "square_grad", "elementwise_sub_grad", "elementwise_add_grad"]


@pytest.fixture(autouse=True)
def programs() -> Iterator[None]:
    with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.unique_name.guard():
        yield


def dense(optimizer: Any) -> Any:
    x = fluid.layers.data("x", [100])
    y = fluid.layers.data("y", [1])
    predicted = fluid.layers.fc(x, 200, param_attr="w", bias_attr="b")
    loss = fluid.layers.mean(fluid.layers.square_error_cost(predicted, y))
    optimizer.minimize(loss)
    return loss


def sparse(optimizer: Any) -> Any:
    ids = [fluid.layers.data(name, [1], dtype="int64") for name in ("first", "second")]
    rows = [
        fluid.layers.embedding(each, [5000, 8], is_sparse=True, param_attr="table") for each in ids
    ]
    loss = fluid.layers.mean(fluid.layers.concat(rows, axis=1))
    optimizer.minimize(loss)
    return loss


def transpiled(*, servers: int = 2, workers: int = 2, sync: bool = True, **config: Any) -> Any:
    settings = fluid.DistributeTranspilerConfig()
    for name, value in config.items():
        setattr(settings, name, value)
    t = fluid.DistributeTranspiler(config=settings)
    t.transpile(0, pservers=",".join(endpoints(servers)), trainers=workers, sync_mode=sync)
    return t


def endpoints(count: int = 2) -> list[str]:
    return [f"127.0.0.1:{6174 + i}" for i in range(count)]


def ops(program: Any, block: int = 0) -> list[str]:
    return [op.type for op in program.block(block).ops]


def named(program: Any, kind: str) -> list[Any]:
    return [op for op in program.global_block().ops if op.type == kind]


def test_synchronous_worker_with_slices() -> None:
    dense(fluid.optimizer.SGD(0.1))
    program = transpiled().get_trainer_program(wait_port=False)
    assert ops(program) == [
        *FORWARD, *BACKWARD, "send", "mul_grad", "split_byref", "send",
        "send_barrier", "recv", "recv", "fetch_barrier", "concat",
    ]  # fmt: skip
    bias, weight = named(program, "send")
    assert bias.input("X") == ["b@GRAD.trainer_0"]
    assert bias.attr("epmap") == ["127.0.0.1:6174"]
    assert weight.input("X") == ["w@GRAD.block0.trainer_0", "w@GRAD.block1.trainer_0"]
    assert weight.attr("epmap") == ["127.0.0.1:6175", "127.0.0.1:6174"]
    assert named(program, "split_byref")[0].attr("sections") == [50, 50]
    assert named(program, "concat")[0].input("X") == ["w.block0", "w.block1"]
    assert ops(fluid.default_startup_program()) == [
        "fill_constant", "uniform_random", "recv", "recv", "fetch_barrier", "concat",
    ]  # fmt: skip


def test_asynchronous_worker_with_whole_parameters() -> None:
    dense(fluid.optimizer.SGD(0.1))
    program = transpiled(sync=False, slice_var_up=False).get_trainer_program(wait_port=False)
    assert ops(program) == [*FORWARD, *BACKWARD, "send", "mul_grad", "send", "recv", "recv"]
    assert [op.output("Out") for op in named(program, "recv")] == [["b"], ["w"]]


def test_worker_that_splits_when_it_sends() -> None:
    dense(fluid.optimizer.SGD(0.1))
    t = transpiled(sync=False, sync_mode=False, runtime_split_send_recv=True)
    program = t.get_trainer_program(wait_port=False)
    assert ops(program) == [*FORWARD, *BACKWARD, "send", "mul_grad", "send", "recv", "recv"]
    weight = named(program, "send")[1]
    assert weight.input("X") == ["w@GRAD"]
    assert weight.attr("sections") == [50, 50]
    assert weight.attr("send_varnames") == ["w@GRAD.block0", "w@GRAD.block1"]


def test_rows_are_fetched_by_one_op() -> None:
    sparse(fluid.optimizer.SGD(0.1))
    program = transpiled().get_trainer_program(wait_port=False)
    assert ops(program) == [
        "distributed_lookup_table", "concat", "mean", "fill_constant", "mean_grad", "concat_grad",
        "lookup_table_grad", "lookup_table_grad", "sum", "split_selected_rows", "send",
        "send_barrier", "fetch_barrier",
    ]  # fmt: skip
    (lookup,) = named(program, "distributed_lookup_table")
    assert lookup.input("Ids") == ["first", "second"]
    assert lookup.attr("height_sections") == [2500, 2500]
    assert ops(fluid.default_startup_program()) == ["fetch_barrier", "fake_init"]


@pytest.mark.parametrize(
    ("config", "number"),
    [
        ({}, 0),
        ({"sync_mode": False, "runtime_split_send_recv": True}, 1),
        ({"sync_mode": False}, 2),
        ({"sync_mode": False, "completely_not_async": True}, 0),
    ],
)
def test_servers_know_the_mode_by_its_number(config: dict[str, bool], number: int) -> None:
    dense(fluid.optimizer.SGD(0.1))
    program = transpiled(sync=not config, **config).get_pserver_program(endpoints()[0])
    assert program.global_block().ops[0].attr("distributed_mode") == number


def test_server_has_a_block_per_update() -> None:
    dense(fluid.optimizer.Adam(0.1, regularization=fluid.regularizer.L2Decay(0.1)))
    t = transpiled()
    program, startup = t.get_pserver_programs(endpoints()[0])
    assert ops(program) == ["listen_and_serv"]
    (serve,) = program.global_block().ops
    assert [block.idx for block in serve.attr("optimize_blocks")] == [1, 2]
    assert serve.attr("grad_to_block_id") == ["b@GRAD:1", "w@GRAD.block1:2"]
    for block in (1, 2):
        assert ops(program, block) == ["sum", "scale", "scale", "sum", "adam"]
    assert program.global_block().var("w_moment1_0").shape == (50, 200)
    assert program.global_block().var("w_beta1_pow_acc_0").shape == (1,)
    assert ops(startup) == ["fill_constant"] * 10 + ["uniform_random"]
    assert startup.global_block().var("w.block1").shape == (50, 200)


def test_schedule_of_the_learning_rate_is_on_the_server() -> None:
    dense(fluid.optimizer.SGD(fluid.layers.piecewise_decay([10], [1.0, 0.5])))
    t = transpiled(sync=False)
    program = t.get_pserver_program(endpoints()[0])
    (serve,) = program.global_block().ops
    schedule = ops(program, serve.attr("lr_decay_block_id"))
    assert schedule[:2] == ["sum", "cast"]
    assert schedule.count("conditional_block") == 2
    assert ops(program, program.num_blocks - 1) == ["sgd"]
    worker = t.get_trainer_program(wait_port=False)
    assert "increment" not in ops(worker)
    assert named(worker, "send")[-1].input("X") == ["@LR_DECAY_COUNTER@.trainer_0"]


def test_clip_by_value_of_a_slice_is_on_the_server() -> None:
    dense(fluid.optimizer.SGD(0.1, grad_clip=fluid.clip.GradientClipByValue(1.0)))
    t = transpiled(workers=1)
    program = t.get_pserver_program(endpoints()[1])
    assert ops(program, 1) == ["sum", "scale", "clip", "sgd"]
    assert "clip" not in ops(t.get_trainer_program(wait_port=False))


def test_server_without_parameters_has_an_empty_block() -> None:
    x = fluid.layers.data("x", [10])
    fluid.optimizer.SGD(0.1).minimize(fluid.layers.mean(fluid.layers.fc(x, 1, bias_attr=False)))
    program = transpiled().get_pserver_program(endpoints()[1])
    assert program.num_blocks == 2
    assert ops(program, 1) == []


def test_program_says_where_parameters_are() -> None:
    dense(fluid.optimizer.Momentum(0.1, 0.9))
    program = transpiled().get_trainer_program(wait_port=False)
    assert program._is_distributed
    assert program._is_chief
    assert program._endpoints == endpoints()
    placed = program._parameters_on_pservers
    weight = placed.get_distributed_var_by_slice("w.block1")
    assert (weight.origin.name, weight.offset, weight.endpoint) == ("w", 10000, endpoints()[0])
    state = placed.get_distributed_var_by_origin_and_ep("w_velocity_0", endpoints()[1])
    assert (state.vtype, state.is_slice, state.slice.shape) == ("Optimizer", True, (50, 200))
    grouped = placed.get_distributed_vars_by_vtypes(["Param"], groupby=True)
    assert {name: len(found) for name, found in grouped.items()} == {"w": 2, "b": 1}


def test_transpiler_knows_its_table() -> None:
    ids = fluid.layers.data("ids", [1], dtype="int64")
    rows = fluid.layers.embedding(ids, [50, 4], is_distributed=True, param_attr="table")
    fluid.optimizer.SGD(0.1).minimize(fluid.layers.mean(rows))
    t = transpiled()
    assert (t.has_distributed_lookup_table, t.table_name) == (True, "table")


def test_workers_that_do_not_wait_connect_when_they_first_send() -> None:
    from paddle.fluid.incubate.fleet.base import role_maker
    from paddle.fluid.incubate.fleet.parameter_server.distribute_transpiler import fleet

    role = role_maker.UserDefinedRoleMaker(0, role_maker.Role.WORKER, 1, endpoints())
    fleet.init(role)
    config = fluid.DistributeTranspilerConfig()
    config.wait_port = False
    dense(fleet.distributed_optimizer(fluid.optimizer.SGD(0.1), config))
    try:
        fleet.init_worker()  # no server is there
        fleet.stop_worker()
    finally:
        end_sessions()
