"""Jobs with servers as a script sees them: saving, loading, inference without servers, refusals."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from jobs import run_job
from programs import IDS, batch, fresh, joined, network, optimizer, strategy

import fleetx
from fleetx import fleet, static
from fleetx.static.io import load_inference_dir
from fleetx.techniques.parameter_server import server_mode

pytestmark = [
    pytest.mark.slow,  # starts jobs or servers
    pytest.mark.usefixtures("fresh_fleet", "fresh_graph"),
]


def _train(folder: str, first: int, last: int, load: str | None) -> Any:
    """Be any process of a job that trains some steps and saves; return what it predicts."""
    fresh()
    fleet.init()
    loss, out = network("both")
    fleet.distributed_optimizer(optimizer("adagrad"), strategy()).minimize(loss)
    if fleet.is_server():
        ops = fleet.main_program.global_block().ops
        assert [op.type for op in ops] == ["listen_and_serv"]
        fleet.init_server(load)
        static.Executor().run(fleet.startup_program)
        static.Executor().run(fleet.main_program)  # the same as fleet.run_server()
        return None
    exe = static.Executor()
    exe.run(fleet.startup_program)
    fleet.init_worker()  # in this order too
    program = fleet.main_program
    for step in range(first, last):
        exe.run(program, feed=batch(step, fleet.worker_index()), fetch_list=[loss])
    fleet.barrier_worker()
    found = None
    if fleet.is_first_worker():
        fleet.save_persistables(exe, folder)
        fleet.save_inference_model(exe, os.path.join(folder, "model"), ["x", "ids"], [out])
        test = program.clone(for_test=True)
        assert [op.type for op in test.global_block().ops if op.type in ("send", "recv")] == []
        feed = {k: v for k, v in batch(50, 0).items() if k != "y"}
        found = exe.run(test.clone(), feed=batch(50, 0), fetch_list=[out])[0], feed
    fleet.barrier_worker()
    fleet.stop_worker()
    return found


def test_saves_go_on_with_another_number_of_servers_and_models_run_alone(tmp_path):
    whole, half, rest = (str(tmp_path / name) for name in ("whole", "half", "rest"))
    expected, feed = run_job(_train, 1, 1, whole, 0, 4, None)[0]
    run_job(_train, 1, 1, half, 0, 2, None)
    found, _ = run_job(_train, 3, 1, rest, 2, 4, half)[0]
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)
    with static.scope_guard(static.Scope()):
        exe = static.Executor()
        program, feeds, fetches = load_inference_dir(os.path.join(rest, "model"), exe)
        (alone,) = exe.run(program, feed={n: feed[n] for n in feeds}, fetch_list=fetches)
    np.testing.assert_allclose(alone, expected, rtol=0, atol=1e-12)
    assert (Path(rest) / "w0").is_file()
    assert (Path(rest) / "table").is_file()
    assert not (Path(rest) / "grown").is_file()


def _load_again(folder: str) -> Any:
    """Train, save, train on, load; return what a job predicts after each."""
    fresh()
    fleet.init()
    loss, out = network("both")
    fleet.distributed_optimizer(optimizer("adagrad"), strategy()).minimize(loss)
    if fleet.is_server():
        fleet.init_server()
        fleet.run_server()
        return None
    exe = static.Executor()
    exe.run(fleet.startup_program)
    fleet.init_worker()
    test = fleet.main_program.clone(for_test=True)
    found = []

    def train(steps: range) -> None:
        for step in steps:
            exe.run(fleet.main_program, feed=batch(step, 0), fetch_list=[loss])
        found.append(exe.run(test, feed=batch(50, 0), fetch_list=[out])[0])

    train(range(3))
    fleet.save_persistables(exe, folder)
    fleet.save_inference_model(exe, os.path.join(folder, "one"), ["x", "ids"], out)  # no list
    train(range(3, 5))
    with pytest.raises(FileNotFoundError, match=r"takes what fleet.save_persistables wrote"):
        fleet.load_model(os.path.join(folder, "nothing"))
    fleet.load_model(folder)
    train(range(0))
    train(range(3, 5))
    fleet.stop_worker()
    return found


def test_a_job_goes_back_to_what_it_has_saved(tmp_path):
    saved, later, loaded, again = run_job(_load_again, 2, 1, str(tmp_path))[0]
    assert not np.allclose(saved, later)
    np.testing.assert_array_equal(loaded, saved)
    np.testing.assert_array_equal(again, later)  # the state of the optimizer came back too


def _two_workers(folder: str) -> Any:
    """A script of PyTorch that saves and is loaded again, and uses what programs have not."""
    fleet.init(strategy=strategy())
    if fleet.is_server():
        fleet.init_server(folder if os.path.isdir(folder) else None)
        fleet.run_server()
        return None
    torch.manual_seed(fleet.worker_index())  # workers that begin differently train alike
    model = torch.nn.Sequential(
        fleetx.SparseEmbedding("t", 4, entry=fleetx.CountFilterEntry(1)), torch.nn.Linear(4, 1)
    )
    fleet.init_worker()
    made = fleet.distributed_model(model)
    opt = fleet.distributed_optimizer(torch.optim.Adam(model.parameters(), 0.01))
    first = model[1].weight.detach().clone()
    for _ in range(3):
        opt.clear_grad()
        made(torch.arange(5)).sum().backward()
        opt.step()
    fleet.barrier_worker()
    if fleet.is_first_worker():
        fleet.save_persistables(None, folder)
    fleet.stop_worker()
    return first.numpy(), model[1].weight.detach().numpy()


def test_models_are_saved_and_loaded(tmp_path):
    folder = str(tmp_path / "saved")
    first = run_job(_two_workers, 2, 2, folder)
    np.testing.assert_array_equal(first[0][0], first[1][0])
    np.testing.assert_array_equal(first[0][1], first[1][1])
    second = run_job(_two_workers, 1, 2, folder)
    np.testing.assert_array_equal(second[0][0], first[0][1])
    np.testing.assert_array_equal(second[1][0], first[0][1])


def _paddle_files(folder: str) -> Any:
    fresh()
    fleet.init()
    loss, _ = network("is_sparse")
    fleet.distributed_optimizer(optimizer("sgd"), strategy()).minimize(loss)
    if fleet.is_server():
        fleet.init_server(folder)
        fleet.run_server()
        return None
    exe = static.Executor()
    fleet.init_worker()
    exe.run(fleet.startup_program)
    values = {n: static.global_scope().find_var(n).value.numpy().copy() for n in ("w0", "w1")}
    values["table"] = fleet.main_program.binding.servers.whole_table("table").numpy()
    fleet.stop_worker()
    return values


def test_servers_load_files_of_single_variables(tmp_path):
    fresh()
    with static.scope_guard(static.Scope()):
        loss, _ = network("is_sparse")
        optimizer("sgd").minimize(loss)
        exe = static.Executor()
        exe.run(static.default_startup_program())
        exe.run(feed=joined(0, 1), fetch_list=[loss])
        static.io.save_persistables(exe, str(tmp_path))
        expected = {
            n: static.global_scope().find_var(n).value.numpy().copy() for n in ("w0", "w1", "table")
        }
    found = run_job(_paddle_files, 2, 1, str(tmp_path))[0]
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value)


# -- without processes ----------------------------------------------------------------------------
@pytest.fixture
def session():
    fresh()
    made = fleet.UserDefinedRoleMaker(0, fleet.Role.WORKER, 1, ["127.0.0.1:1", "127.0.0.1:2"])
    fleet.init(made)
    yield fleet
    fleet.init()


def test_the_backward_pass_of_a_worker_is_one_call(session):
    loss, _ = network("is_sparse", padding=2)
    fleet.distributed_optimizer(optimizer("adam"), strategy()).minimize(loss)
    from fleetx.static.lowering import lower

    step = lower(
        fleet.main_program, ["x", "y", "ids"], [loss.name], static.Scope(), torch.device("cpu")
    )
    assert step.source.count("autograd_grad(") == 1
    types = [op.type for op in fleet.main_program.global_block().ops]
    assert types[-5:] == ["send", "send", "send_barrier", "recv", "fetch_barrier"]
    assert "adam" not in types
    assert "adam" in [op.type for op in fleet._origin_program.global_block().ops]
    assert not [v for v in fleet.main_program.list_vars() if "moment" in v.name]


def test_recomputed_look_ups_use_the_fetched_rows(session):
    loss, _ = network("is_sparse")
    ops = static.default_main_program().global_block().ops
    asked = strategy()
    asked.recompute = True
    tops = [op.output("Out")[0] for op in ops if op.type == "tanh"]
    asked.recompute_configs = {"checkpoints": tops}
    fleet.distributed_optimizer(optimizer("adagrad"), asked).minimize(loss)
    readers = [op for op in fleet.main_program.global_block().ops if "table" in op.input_arg_names]
    assert readers == []


def test_a_program_without_parameters_ends_with_a_barrier(session):
    x, y = (static.data(name, [-1, 1], "float32") for name in "xy")
    x.stop_gradient = False
    loss = static.layers.mean(static.layers.square_error_cost(x, y))
    fleet.distributed_optimizer(optimizer("sgd"), strategy()).minimize(loss)
    assert fleet.main_program.global_block().ops[-1].type == "send_barrier"


def test_a_mode_has_to_be_chosen(session):
    loss, _ = network()
    opt = fleet.distributed_optimizer(optimizer("sgd"), fleet.DistributedStrategy())
    with pytest.raises(ValueError, match="must set its training mode"):
        opt.minimize(loss)
    asked = strategy("geo")
    assert (server_mode(asked).kind, server_mode(asked).k_steps) == ("geo", 1)
    assert server_mode(strategy("async")).kind == "async"
    assert server_mode(strategy()).kind == "sync"


def test_what_servers_cannot_do_is_refused(session):
    loss, _ = network("growing")
    with pytest.raises(ValueError, match="'table' is on parameter servers, but rows are updated"):
        fleet.distributed_optimizer(optimizer("lamb"), strategy()).minimize(loss)
    with pytest.raises(RuntimeError, match="is for servers"):
        fleet.run_server()
    fresh()
    loss, _ = network()
    fleet.distributed_optimizer(optimizer("sgd"), strategy()).minimize(loss)
    with pytest.raises(Exception, match="call fleet.init_worker"):
        static.Executor().run(fleet.main_program, feed=batch(0, 0), fetch_list=[loss])


def test_rows_without_an_optimizer_are_refused(session):
    model = torch.nn.Sequential(fleetx.SparseEmbedding("t", 4), torch.nn.Linear(4, 1))
    fleet.init()
    fleet.distributed_model(model)
    with pytest.raises(ValueError, match="cannot be updated by RMSprop"):
        fleet.distributed_optimizer(torch.optim.RMSprop(model.parameters()))


def test_an_embedding_alone_keeps_what_nobody_takes():
    embedding = fleetx.SparseEmbedding("t", 2, initializer="zeros", padding_idx=7)
    out = embedding(torch.tensor([[1, -5], [7, 1]]))
    assert out.shape == (2, 2, 2)
    out.sum().backward()
    embedding.apply_gradients(0.5)
    rows = embedding(torch.tensor([1, -5, 7, IDS])).detach()
    np.testing.assert_array_equal(rows, [[-1, -1], [-0.5, -0.5], [0, 0], [0, 0]])


def _late(folder: str) -> Any:
    """Be any process of a job whose workers meet the servers only when they first need them."""
    fresh()
    fleet.init()
    loss, out = network("both")
    chosen = strategy()
    chosen.a_sync_configs = {"launch_barrier": False}
    fleet.distributed_optimizer(optimizer("sgd"), chosen).minimize(loss)
    if fleet.is_server():
        fleet.init_server()
        fleet.run_server()
        return None
    exe = static.Executor()
    exe.run(fleet.startup_program)
    fleet.init_worker()
    assert fleet.fleet._servers is not None
    met = fleet.fleet._servers._client is not None
    exe.run(fleet.main_program, feed=batch(0, fleet.worker_index()), fetch_list=[loss])
    fleet.save(folder, feed=["x", "ids"], fetch=[out])
    fleet.barrier_worker()
    compiled = static.CompiledProgram(fleet.main_program)
    for wrong in ({"executor": "exe"}, {"executor": exe, "main_program": compiled}):
        with pytest.raises(TypeError, match="Executor|CompiledProgram"):
            fleet.save_persistables(dirname=folder, **wrong)
    fleet.stop_worker()
    return met


def test_workers_that_do_not_wait_for_servers_meet_them_later(tmp_path):
    assert run_job(_late, 1, 2, str(tmp_path / "model"))[:2] == [False, False]
    with static.scope_guard(static.Scope()):
        _, feeds, _ = load_inference_dir(str(tmp_path / "model"), static.Executor())
        assert feeds == ["x", "ids"]
