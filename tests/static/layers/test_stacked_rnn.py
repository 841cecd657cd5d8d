"""GRU and LSTM networks of several layers and both directions."""

import numpy as np
import pytest
import torch

from fleetx import static
from fleetx.static import layers
from fleetx.static.layers.contrib import partial_concat, partial_sum
from fleetx.static.layers.stacked_rnn import BasicGRUUnit, BasicLSTMUnit, basic_gru, basic_lstm

BATCH, STEPS, WIDTH, SIZE = 3, 4, 5, 2
X = np.random.default_rng(0).normal(size=(BATCH, STEPS, WIDTH)).astype("float32")


@pytest.fixture(autouse=True)
def _program():
    with static.program_guard(static.Program(), static.Program()), static.unique_name.guard():
        static.default_startup_program().random_seed = 5
        with static.scope_guard(static.Scope()):
            yield


def run(fetches, feed):
    executor = static.Executor()
    executor.run(static.default_startup_program())
    return executor.run(feed=feed, fetch_list=list(fetches))


def value(name):
    return np.asarray(static.global_scope().find_var(name).get_tensor())


def torch_lstm(count, bidirectional):
    """Return torch's network with the weights of the program; gates come in another order."""
    network = torch.nn.LSTM(WIDTH, SIZE, count, batch_first=True, bidirectional=bidirectional)
    for layer in range(count):
        for way, suffix in (("", ""), ("reverse_", "_reverse"))[: 1 + bidirectional]:
            unit = f"basic_lstm_{way}layers_{layer}/BasicLSTMUnit_0"
            take, new, keep, show = np.split(value(f"{unit}.w_0"), 4, axis=1)
            weight = torch.tensor(np.concatenate([take, keep, new, show], 1).T.copy())
            rows = weight.shape[1] - SIZE
            with torch.no_grad():
                getattr(network, f"weight_ih_l{layer}{suffix}").copy_(weight[:, :rows])
                getattr(network, f"weight_hh_l{layer}{suffix}").copy_(weight[:, rows:])
                getattr(network, f"bias_ih_l{layer}{suffix}").zero_()
                getattr(network, f"bias_hh_l{layer}{suffix}").zero_()
    return network


@pytest.mark.parametrize(("count", "bidirectional"), [(1, False), (2, False), (1, True)])
@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("with_state", [True, False])
def test_an_lstm_is_torchs(count, bidirectional, batch_first, with_state):
    ways = 1 + bidirectional
    x = static.data("x", [-1, -1, WIDTH])
    shape = [count * ways, BATCH, SIZE]
    hidden, cell = (static.data(name, shape) if with_state else None for name in ("hidden", "cell"))
    outs = basic_lstm(
        x,
        hidden,
        cell,
        SIZE,
        num_layers=count,
        bidirectional=bidirectional,
        batch_first=batch_first,
        forget_bias=0.0,
    )
    feed = {"x": X if batch_first else X.transpose(1, 0, 2).copy()}
    states = [np.zeros(shape, "float32")] * 2
    if with_state:
        states = list(np.random.default_rng(1).normal(size=(2, *shape)).astype("float32"))
        feed |= dict(zip(("hidden", "cell"), states, strict=True))
    found = run(outs, feed)
    expected, last = torch_lstm(count, bidirectional)(
        torch.tensor(X), tuple(torch.tensor(s) for s in states)
    )
    out = found[0] if batch_first else found[0].transpose(1, 0, 2)
    np.testing.assert_allclose(out, expected.detach(), rtol=1e-4, atol=1e-6)
    for got, wanted in zip(found[1:], last, strict=True):
        np.testing.assert_allclose(got, wanted.detach(), rtol=1e-4, atol=1e-6)


def test_a_gru_is_a_cell_run_over_its_steps():
    x = static.data("x", [-1, STEPS, WIDTH])
    count = static.data("count", [-1], "int64")
    named = static.ParamAttr("shared")
    out, last = basic_gru(x, None, SIZE, sequence_length=count, param_attr=named)
    assert [p.name for p in static.default_main_program().all_parameters()][:2] == [
        "shared_fw_w_0_gate",
        "shared_fw_w_0_candidate",
    ]
    cell = layers.GRUCell(SIZE, param_attr=static.ParamAttr("shared_fw_w_0"))
    expected, expected_last = layers.rnn(cell, x, sequence_length=count)
    found = run([out, expected, last, expected_last], {"x": X, "count": np.array([4, 2, 3])})
    for i, steps in enumerate([4, 2, 3]):
        np.testing.assert_allclose(found[0][i, :steps], found[1][i, :steps], rtol=1e-5)
    np.testing.assert_allclose(found[2][0], found[3], rtol=1e-5)


def test_dropout_lies_between_layers():
    x = static.data("x", [-1, STEPS, WIDTH])
    basic_gru(x, None, SIZE, num_layers=2, dropout_prob=0.5)
    body = static.default_main_program().block(1)
    assert [op.type for op in body.ops].count("dropout") == 2


def test_units_step_by_themselves():
    x, state = static.data("x", [-1, WIDTH]), static.data("state", [-1, SIZE])
    gru = BasicGRUUnit("gru", SIZE)(x, state)
    hidden, cell = BasicLSTMUnit("lstm", SIZE)(x, state, state)
    feed = {"x": X[:, 0], "state": np.zeros((BATCH, SIZE), "float32")}
    shapes = [v.shape for v in run([gru, hidden, cell], feed)]
    assert shapes == [(BATCH, SIZE)] * 3
    assert static.default_main_program().global_block().has_var("lstm/BasicLSTMUnit_0.w_0")


def test_columns_of_several_matrices():
    a, b = static.data("a", [2, 3]), static.data("b", [2, 3])
    feed = {"a": np.arange(6, dtype="float32").reshape(2, 3), "b": np.ones((2, 3), "float32")}
    found = run([partial_concat([a, b], 1, 2), partial_sum([a, b], 1, 1)], feed)
    np.testing.assert_array_equal(found[0], [[1, 2, 1, 1], [4, 5, 1, 1]])
    np.testing.assert_array_equal(found[1], [[2], [5]])
    with pytest.raises(TypeError, match=r"input\[0\]"):
        partial_sum([1])
