"""DistributeTranspiler, used as Paddle 1.x's guides do: without a fleet."""

from __future__ import annotations

import os

import numpy as np
import pytest
from jobs import run_job

pytest.importorskip("paddle")

STEPS = {True: 12, False: 100}


def build(fluid, *, sparse):
    ids = fluid.layers.data("ids", [1], dtype="int64")
    x = fluid.layers.data("x", [3])
    y = fluid.layers.data("y", [1])
    rows = fluid.layers.embedding(ids, [10, 2], is_sparse=sparse)
    predicted = fluid.layers.fc(fluid.layers.concat([x, rows], axis=1), 1)
    loss = fluid.layers.mean(fluid.layers.square_error_cost(predicted, y))
    if sparse:  # asynchronous workers come with late gradients: small steps
        fluid.optimizer.SGD(0.01).minimize(loss)
    else:
        clip = fluid.clip.GradientClipByGlobalNorm(1.0)
        fluid.optimizer.Momentum(0.1, 0.9, grad_clip=clip).minimize(loss)
    return loss


def batch(step, worker, workers):
    random = np.random.RandomState(step)
    x, ids = random.rand(8, 3).astype("float32"), random.randint(0, 10, (8, 1)).astype("int64")
    every = {"x": x, "ids": ids, "y": x.sum(1, keepdims=True)}
    return {name: value[worker::workers] for name, value in every.items()}


def script(sync: bool, closes: bool) -> list[float] | None:
    """Train as a process of a job that reads its role from variables of its own."""
    import paddle.fluid as fluid

    fluid.default_startup_program().random_seed = 3
    loss = build(fluid, sparse=not sync)
    servers = os.environ["PADDLE_PSERVERS_IP_PORT_LIST"]
    t = fluid.DistributeTranspiler()
    worker = int(os.environ.get("PADDLE_TRAINER_ID", "0"))
    t.transpile(worker, pservers=servers, trainers=2, sync_mode=sync)
    exe = fluid.Executor(fluid.CPUPlace())
    if os.environ["TRAINING_ROLE"] == "PSERVER":
        own = f"127.0.0.1:{os.environ['PADDLE_PORT']}"
        program = t.get_pserver_program(own)
        exe.run(t.get_startup_program(own, program))
        exe.run(program)
        return None
    program = t.get_trainer_program()
    test = program.clone(for_test=True)
    with fluid.program_guard(program):  # ops that a script appends run too
        twice = fluid.layers.scale(loss, 2.0)
    exe.run(fluid.default_startup_program())
    losses = []
    for i in range(STEPS[sync]):
        feed = batch(i, worker, 2)
        (before,) = exe.run(test, feed=feed, fetch_list=[loss])
        found, doubled = exe.run(program, feed=feed, fetch_list=[loss, twice])
        np.testing.assert_allclose(doubled, 2 * found)
        if sync:
            np.testing.assert_allclose(before, found, rtol=1e-5)
        losses.append(float(found[0]))
    if closes:
        exe.close()
    else:
        t._at_exit()
    return losses


def geo_script() -> list[float] | None:
    """Train by geo, with a communicator that is started and stopped."""
    import paddle.fluid as fluid
    from paddle.fluid.communicator import Communicator
    from paddle.fluid.transpiler.geo_sgd_transpiler import GeoSgdTranspiler

    fluid.default_startup_program().random_seed = 3
    loss = build(fluid, sparse=True)
    config = fluid.DistributeTranspilerConfig()
    config.geo_sgd_need_push_nums = 4
    t = GeoSgdTranspiler(config)
    worker = int(os.environ.get("PADDLE_TRAINER_ID", "0"))
    t.transpile(worker, pservers=os.environ["PADDLE_PSERVERS_IP_PORT_LIST"], trainers=2)
    exe = fluid.Executor(fluid.CPUPlace())
    if os.environ["TRAINING_ROLE"] == "PSERVER":
        own = f"127.0.0.1:{os.environ['PADDLE_PORT']}"
        exe.run(t.get_pserver_program(own))
        return None
    program = t.get_trainer_program()
    assert [op.type for op in program.global_block().ops][-2:] == ["sgd", "send"]
    communicator = Communicator(program)
    assert not communicator.is_running()
    communicator.start()
    exe.run(fluid.default_startup_program())
    assert communicator.is_running()
    losses = []
    for i in range(STEPS[False]):
        if i == 10:
            communicator.stop()
            assert not communicator.is_running()
            with pytest.raises(RuntimeError, match="call the communicator's start"):
                exe.run(program, feed=batch(i, worker, 2))
            communicator.start()
        losses.append(float(exe.run(program, feed=batch(i, worker, 2), fetch_list=[loss])[0][0]))
    exe.close()
    assert not communicator.is_running()
    return losses


def alone() -> list[float]:
    import paddle.fluid as fluid

    main, startup = fluid.Program(), fluid.Program()
    startup.random_seed = 3
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        loss = build(fluid, sparse=False)
    exe, scope = fluid.Executor(fluid.CPUPlace()), fluid.Scope()
    with fluid.scope_guard(scope):
        exe.run(startup)
        return [
            float(exe.run(main, feed=batch(i, 0, 1), fetch_list=[loss])[0][0])
            for i in range(STEPS[True])
        ]


@pytest.mark.slow
def test_synchronous_training_is_training_alone():
    both = np.mean(run_job(script, 2, 2, True, True), axis=0)
    np.testing.assert_allclose(both, alone(), rtol=1e-4)


@pytest.mark.slow
def test_asynchronous_workers_learn_and_servers_end():
    for losses in run_job(script, 1, 2, False, False):
        assert np.mean(losses[-3:]) < np.mean(losses[:3])


@pytest.mark.slow
def test_geo_workers_learn_between_starts_and_stops():
    for losses in run_job(geo_script, 1, 2):
        assert np.mean(losses[-3:]) < np.mean(losses[:3])


def test_geo_is_for_sgd():
    import paddle.fluid as fluid
    from paddle.fluid.transpiler.geo_sgd_transpiler import GeoSgdTranspiler

    with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.unique_name.guard():
        build(fluid, sparse=False)
        with pytest.raises(ValueError, match="updates by momentum, but geo"):
            GeoSgdTranspiler().transpile(0, pservers="127.0.0.1:1", trainers=1)


def test_what_cannot_be_divided_is_named():
    import paddle.fluid as fluid

    t = fluid.DistributeTranspiler()
    with pytest.raises(RuntimeError, match="transpile"):
        t.get_trainer_program()
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        with pytest.raises(ValueError, match="minimize"):
            t.transpile(0, pservers="127.0.0.1:1", trainers=1)
        build(fluid, sparse=False)
        with pytest.raises(ValueError, match="is_collective"):
            t.transpile(0, trainers="127.0.0.1:1,127.0.0.1:2")
        t.transpile(0, pservers="127.0.0.1:1", trainers=1)
    assert [op.type for op in main.global_block().ops][-5:] == [
        "send_barrier", "recv", "recv", "recv", "fetch_barrier",
    ]  # fmt: skip
    with pytest.raises(ValueError, match=r"127\.0\.0\.1:2"):
        t.get_pserver_program("127.0.0.1:2")
    (serve,) = t.get_pserver_program("127.0.0.1:1").global_block().ops
    assert serve.type == "listen_and_serv"
