"""Recurrent layers against those of PyTorch, forward and backward."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from fleetx import static
from fleetx.static import layers, nn

BATCH, STEPS, INPUT, HIDDEN = 3, 4, 5, 6
KINDS = {
    "SimpleRNN": (nn.SimpleRNN, torch.nn.RNN),
    "LSTM": (nn.LSTM, torch.nn.LSTM),
    "GRU": (nn.GRU, torch.nn.GRU),
}


def _copy(ours: Any, theirs: torch.nn.Module, scope: static.Scope) -> None:
    """Give PyTorch's layer the values of ours: layers in order, directions within them."""
    for number, layer in enumerate(ours):
        runs = [layer] if isinstance(layer, nn.RNN) else [layer.forwards, layer.backwards]
        for run, end in zip(runs, ("", "_reverse"), strict=False):
            for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
                value = scope.find_var(getattr(run.cell, name).name).value
                getattr(theirs, f"{name}_l{number}{end}").data.copy_(value)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("count", "direction"), [(1, "forward"), (2, "bidirect")])
@pytest.mark.parametrize("time_major", [False, True])
@pytest.mark.usefixtures("fresh_graph")
def test_layers_compute_as_pytorch(kind: str, count: int, direction: str, time_major: bool) -> None:
    mine, other = KINDS[kind]
    directions = 1 if direction == "forward" else 2
    shape = (STEPS, BATCH, INPUT) if time_major else (BATCH, STEPS, INPUT)
    x = static.data("x", list(shape), "float32")
    x.stop_gradient = False
    start = static.data("start", [count * directions, BATCH, HIDDEN], "float32")
    ours = mine(INPUT, HIDDEN, count, direction, time_major)
    first = (start, start) if kind == "LSTM" else start
    outputs, last = ours(x, first)
    last = last[1] if kind == "LSTM" else last
    loss = layers.reduce_sum(outputs * outputs) + layers.reduce_sum(last)
    (gradient,) = static.gradients(loss, x)
    exe = static.Executor()
    random = np.random.default_rng(1)
    feed = {
        "x": random.standard_normal(shape, "float32"),
        "start": random.standard_normal((count * directions, BATCH, HIDDEN), "float32"),
    }
    theirs = other(INPUT, HIDDEN, count, batch_first=not time_major, bidirectional=directions == 2)
    with static.scope_guard(static.Scope()):
        exe.run(static.default_startup_program())
        found = exe.run(feed=feed, fetch_list=[outputs, last, gradient])
        _copy(ours, theirs, static.global_scope())
    value = torch.tensor(feed["x"], requires_grad=True)
    begin = torch.tensor(feed["start"])
    expected, states = theirs(value, (begin, begin) if kind == "LSTM" else begin)
    states = states[1] if kind == "LSTM" else states
    ((expected**2).sum() + states.sum()).backward()
    for got, wanted in zip(found, (expected, states, value.grad), strict=True):
        np.testing.assert_allclose(got, wanted.detach().numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.usefixtures("fresh_graph")
def test_a_cell_alone_begins_with_zeros() -> None:
    x = static.data("x", [-1, INPUT], "float32")
    cell = nn.LSTMCell(INPUT, HIDDEN)
    hidden, (again, state) = cell(x)
    exe = static.Executor()
    exe.run(static.default_startup_program())
    feed = {"x": np.ones((2, INPUT), "float32")}
    values = exe.run(feed=feed, fetch_list=[hidden, again, state])
    np.testing.assert_array_equal(values[0], values[1])
    assert values[2].shape == (2, HIDDEN)


@pytest.mark.usefixtures("fresh_graph")
def test_states_stay_behind_the_end_of_a_sequence() -> None:
    x = static.data("x", [BATCH, STEPS, INPUT], "float32")
    length = static.data("length", [BATCH], "int64")
    _, last = nn.GRU(INPUT, HIDDEN)(x, sequence_length=length)
    exe = static.Executor()
    exe.run(static.default_startup_program())
    values = np.random.default_rng(2).standard_normal((BATCH, STEPS, INPUT), "float32")
    changed = values.copy()
    changed[0, 2:] = 7.0
    lengths = np.array([2, 4, 3])
    results = [
        exe.run(feed={"x": part, "length": lengths}, fetch_list=[last])[0]
        for part in (values, changed)
    ]
    np.testing.assert_array_equal(*results)


@pytest.mark.usefixtures("fresh_graph")
def test_refusals() -> None:
    with pytest.raises(ValueError, match="direction of LSTM must be 'forward', .* 'backward'"):
        nn.LSTM(INPUT, HIDDEN, direction="backward")
    with pytest.raises(ValueError, match="activation of SimpleRNNCell must be 'tanh' or 'relu'"):
        nn.SimpleRNNCell(INPUT, HIDDEN, activation="gelu")
    with pytest.raises(ValueError, match="hidden_size must be positive, not 0"):
        nn.GRUCell(INPUT, 0)
