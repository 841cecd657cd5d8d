"""Programs on several places of one process: fetches by place, and the same training."""

import numpy as np
import pytest

from fleetx import static
from fleetx.static import layers
from fleetx.static.errors import EOFException, FeedError
from fleetx.static.optimizer import AdamOptimizer, SGDOptimizer
from fleetx.static.readers.loader import DataLoader
from fleetx.static.readers.lod_tensor import create_lod_tensor
from fleetx.static.run.compiled_program import (
    CompiledProgram,
    ExecutionStrategy,
    ParallelExecutor,
)
from fleetx.static.run.place import cpu_places

BATCHES = [
    {"x": part[:, :3].copy(), "y": part[:, 3:].copy()}
    for part in np.random.RandomState(0).rand(5, 8, 4).astype("float32")
]


def regression(normalise=False):
    """A small network with clipping and a decaying rate; its loss, its prediction, its rate."""
    x, y = static.data("x", [None, 3]), static.data("y", [None, 1])
    hidden = layers.fc(x, 4, act="tanh")
    if normalise:
        hidden = layers.batch_norm(hidden, moving_mean_name="moving")
    predicted = layers.fc(hidden, 1)
    loss = layers.mean(layers.square(predicted - y))
    rate = layers.exponential_decay(0.1, 2, 0.5)
    AdamOptimizer(rate, grad_clip=static.clip.GradientClipByGlobalNorm(0.5)).minimize(loss)
    return loss, predicted, rate


def trained(places, normalise=False):
    """Losses, rates and parameters after five batches."""
    main, startup = static.Program(), static.Program()
    main.random_seed = startup.random_seed = 3
    scope = static.Scope()
    with static.program_guard(main, startup), static.unique_name.guard():
        loss, predicted, rate = regression(normalise)
    with static.scope_guard(scope):
        exe = static.Executor()
        exe.run(startup)
        program = CompiledProgram(main).with_data_parallel(loss.name, places=cpu_places(places))
        fetched = [exe.run(program, feed, [loss, predicted, rate]) for feed in BATCHES]
        state = {
            p.name: np.array(scope.find_var(p.name).get_tensor()) for p in main.all_parameters()
        }
        if normalise:
            state["moving"] = np.array(scope.find_var("moving").get_tensor())
    return fetched, state


def test_training_on_places_is_training_on_the_whole_batch():
    whole, expected = trained(1)
    for places in (2, 4):
        parts, state = trained(places)
        for (loss, predicted, rate), (losses, by_place, rates) in zip(whole, parts, strict=True):
            assert losses.shape == (places,)
            np.testing.assert_allclose(losses.mean(), loss[0], rtol=1e-4)
            np.testing.assert_allclose(by_place, predicted, rtol=1e-3, atol=1e-5)
            assert rates.tolist() == rate.tolist() * places
        for name, value in expected.items():
            np.testing.assert_allclose(state[name], value, rtol=1e-3, atol=1e-5, err_msg=name)


def test_statistics_are_those_of_the_first_place():
    main, startup = static.Program(), static.Program()
    main.random_seed = startup.random_seed = 3
    with static.program_guard(main, startup), static.unique_name.guard():
        regression(normalise=True)
    alone = static.Scope()
    with static.scope_guard(alone):
        exe = static.Executor()
        exe.run(startup)
        exe.run(main, {name: value[:4] for name, value in BATCHES[0].items()})
        expected = np.array(alone.find_var("moving").get_tensor())
    divided = static.Scope()
    with static.scope_guard(divided):
        exe.run(startup)
        program = CompiledProgram(main).with_data_parallel(places=cpu_places(2))
        exe.run(program, BATCHES[0])
        np.testing.assert_allclose(np.array(divided.find_var("moving").get_tensor()), expected)


@pytest.fixture
def doubling():
    """Sums of sequences and doubled rows, on four places."""
    main = static.Program()
    with static.program_guard(main, static.Program()):
        x = static.data("x", [None, 2])
        words = static.data("words", [None, 1], lod_level=1)
        fetches = [layers.scale(x, 2.0), layers.sequence_pool(words, "sum")]
    return CompiledProgram(main).with_data_parallel(places=cpu_places(4)), fetches


@pytest.mark.parametrize(("rows", "sizes"), [(1, [1]), (5, [2, 2, 1]), (8, [2] * 4), (9, [3] * 3)])
def test_rows_and_sequences_are_divided(doubling, rows, sizes):
    program, fetches = doubling
    x = np.arange(2 * rows, dtype="float32").reshape(rows, 2)
    lengths = [1 + i % 3 for i in range(rows)]
    words = create_lod_tensor(np.ones((sum(lengths), 1), "float32"), [lengths], static.CPUPlace())
    feed = {"x": x, "words": words}
    exe = static.Executor()
    merged = exe.run(program, feed, fetches)
    np.testing.assert_array_equal(merged[0], 2 * x)
    assert merged[1].ravel().tolist() == lengths
    apart = exe.run(program, feed, fetches, return_merged=False)
    assert [part.shape[0] for part in apart[0]] == sizes
    for whole, parts in zip(merged, apart, strict=True):
        np.testing.assert_array_equal(np.concatenate(parts), whole)


def test_feeds_with_different_numbers_of_rows_are_refused(doubling):
    program, fetches = doubling
    feed = {"x": np.ones((8, 2), "float32"), "words": np.ones((3, 1), "float32")}
    with pytest.raises(FeedError, match="'words' has rows for 3 places, others for 4"):
        static.Executor().run(program, feed, fetches)


@pytest.mark.parametrize(("drop_last", "rows"), [(True, [6]), (False, [6, 2])])
def test_places_read_a_batch_each(drop_last, rows):
    main = static.Program()
    with static.program_guard(main, static.Program()):
        x = static.data("x", [None, 1])
        loader = DataLoader.from_generator([x], 4, iterable=False, drop_last=drop_last)
        loader.set_batch_generator(lambda: ([np.full((2, 1), i, "float32")] for i in range(4)))
        doubled = layers.scale(x, 2.0)
    program = CompiledProgram(main).with_data_parallel(places=cpu_places(3))
    exe = static.Executor()
    loader.start()
    assert [exe.run(program, fetch_list=[doubled])[0].shape[0] for _ in rows] == rows
    with pytest.raises(EOFException):
        exe.run(program, fetch_list=[doubled])
    loader.reset()


def test_updates_take_what_is_fed_for_them():
    main, startup = static.Program(), static.Program()
    with static.program_guard(main, startup):
        x, rate = static.data("x", [None, 1]), static.data("rate", [1])
        loss = layers.mean(layers.fc(x, 1, param_attr="w", bias_attr=False))
        SGDOptimizer(rate).minimize(loss)
    scope = static.Scope()
    with static.scope_guard(scope):
        exe = static.Executor()
        exe.run(startup)
        before = np.array(scope.find_var("w").get_tensor())
        program = CompiledProgram(main).with_data_parallel(loss.name, places=cpu_places(2))
        x = np.array([[1.0], [2.0], [3.0], [6.0]], "float32")
        exe.run(program, {"x": x, "rate": np.array([0.5], "float32")})
        after = np.array(scope.find_var("w").get_tensor())
    np.testing.assert_allclose(before - after, [[0.5 * 3.0]], rtol=1e-6)


def test_gradients_are_those_of_the_whole_batch():
    main, startup = static.Program(), static.Program()
    with static.program_guard(main, startup):
        x = static.data("x", [None, 3])
        x.stop_gradient = False
        loss = layers.mean(layers.square(layers.fc(x, 2, param_attr="v", bias_attr=False)))
        static.append_backward(loss)
    with static.scope_guard(static.Scope()):
        exe = static.Executor()
        exe.run(startup)
        fetches = [x.grad_name, "v@GRAD"]
        feed = {"x": BATCHES[0]["x"]}
        of_rows, of_weights = exe.run(main, feed, fetches)
        program = CompiledProgram(main).with_data_parallel(loss.name, places=cpu_places(2))
        by_place = exe.run(program, feed, fetches, return_merged=False)
    np.testing.assert_allclose(np.concatenate(by_place[0]), of_rows, rtol=1e-5)
    np.testing.assert_allclose(sum(by_place[1]), of_weights, rtol=1e-5)


def test_every_step_reads_a_batch_per_place_while_it_trains():
    main, startup = static.Program(), static.Program()
    with static.program_guard(main, startup):
        x = static.data("x", [None, 1])
        loader = DataLoader.from_generator([x], 4, iterable=False)
        loader.set_batch_generator(lambda: ([np.full((2, 1), i, "float32")] for i in range(6)))
        loss = layers.mean(layers.fc(x, 1))
        SGDOptimizer(0.1).minimize(loss)
    program = CompiledProgram(main).with_data_parallel(loss.name, places=cpu_places(2))
    with static.scope_guard(static.Scope()):
        exe = static.Executor()
        exe.run(startup)
        loader.start()
        for _ in range(3):
            exe.run(program, fetch_list=[loss])
        with pytest.raises(EOFException):
            exe.run(program, fetch_list=[loss])
        loader.reset()


def test_minimizing_within_a_branch_is_refused():
    main, startup = static.Program(), static.Program()
    with static.program_guard(main, startup):
        loss = layers.mean(layers.fc(static.data("x", [None, 3]), 1))
        yes = layers.fill_constant([1], "bool", True)
        fast, slow = SGDOptimizer(0.1), SGDOptimizer(0.01)

        def step(optimizer):
            optimizer.minimize(loss)

        layers.case([(yes, lambda: step(fast))], lambda: step(slow))
    program = CompiledProgram(main).with_data_parallel(loss.name, places=cpu_places(2))
    with pytest.raises(NotImplementedError, match="within a branch or loop and has 2 places"):
        static.Executor().run(program, {"x": BATCHES[0]["x"]})


def test_a_dry_run_computes_nothing():
    main = static.Program()
    with static.program_guard(main, static.Program()):
        loss, *_ = regression()
    strategy = ExecutionStrategy()
    strategy._dry_run = True
    program = CompiledProgram(main).with_data_parallel(loss.name, exec_strategy=strategy)
    assert static.Executor().run(program, fetch_list=[loss]) == []


def test_a_parallel_executor_runs_on_as_many_places_as_cpu_num(monkeypatch):
    monkeypatch.setenv("CPU_NUM", "2")
    main, startup = static.Program(), static.Program()
    with static.program_guard(main, startup):
        loss, *_ = regression()
    with static.scope_guard(static.Scope()):
        static.Executor().run(startup)
        exe = ParallelExecutor(use_cuda=False, loss_name=loss.name, main_program=main)
        assert exe.device_count == 2
        assert exe.run([loss.name], feed=BATCHES[0])[0].shape == (2,)
