"""Layers on sequences and recurrent layers: what they build, and small networks that learn."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fleetx import static
from fleetx.static import ParamAttr, layers
from fleetx.static.initializer import Constant, NumpyArrayInitializer
from fleetx.static.layers.contrib import fused_embedding_seq_pool
from fleetx.static.readers.lod_tensor import create_lod_tensor

RNG = np.random.default_rng(0)
LENGTHS = [2, 3, 1]


def sequences(x: np.ndarray, lengths: list[int] | None = None) -> Any:
    return create_lod_tensor(x, [lengths or LENGTHS], None)


def run(fetch: list[Any], feed: dict[str, Any]) -> list[np.ndarray]:
    executor = static.Executor(static.CPUPlace())
    executor.run(static.default_startup_program())
    found = executor.run(feed=feed, fetch_list=fetch, return_numpy=False)
    return [np.asarray(v) for v in found]


def floats(*shape: int) -> np.ndarray:
    return RNG.uniform(-1, 1, shape).astype("float32")


def test_layers_know_their_shapes_and_levels() -> None:
    x = static.data("x", [-1, 4], "float32", lod_level=1)
    row = static.data("row", [-1, 3], "float32")
    ids = static.data("ids", [-1, 1], "int64", lod_level=1)
    padded, length = layers.sequence_pad(x, layers.fill_constant([1], "float32", 0.0), maxlen=7)
    hidden, cell = layers.dynamic_lstm(layers.fc(x, 8), 8)
    shapes = {
        "pool": (layers.sequence_pool(x, "sum"), (-1, 4), 0),
        "conv": (layers.sequence_conv(x, 5, bias_attr=False), (-1, 5), 1),
        "expand": (layers.sequence_expand_as(row, x), (-1, 3), 1),
        "concat": (layers.sequence_concat([x, x]), (-1, 4), 1),
        "pad": (padded, (-1, 7, 4), 0),
        "length": (length, (-1,), 0),
        "unpad": (layers.sequence_unpad(padded, length), (-1, 4), 1),
        "reshape": (layers.sequence_reshape(x, 2), (-1, 2), 1),
        "windows": (layers.sequence_enumerate(ids, 3), (-1, 3), 1),
        "mask": (layers.sequence_mask(length, maxlen=6), (-1, 6), 0),
        "hidden": (hidden, (-1, 2), 1),
        "cell": (cell, (-1, 2), 1),
        "gru": (layers.dynamic_gru(layers.fc(x, 6), 2), (-1, 2), 1),
        "append": (layers.lod_append(x, [0, 1, 2]), (-1, 4), 2),
    }
    for name, (var, shape, level) in shapes.items():
        assert (var.shape, var.lod_level) == (shape, level), name


def test_parameters_are_named_as_in_fluid() -> None:
    x = static.data("x", [-1, 8], "float32", lod_level=1)
    layers.sequence_conv(x, 5)
    layers.dynamic_lstm(x, 8)
    layers.dynamic_lstmp(x, 8, 3)
    layers.dynamic_gru(layers.fc(x, 6, bias_attr=False), 2)
    shapes = {p.name: p.shape for p in static.default_main_program().all_parameters()}
    assert shapes == {
        "sequence_conv_0.w_0": (24, 5),
        "sequence_conv_0.b_0": (5,),
        "lstm_0.w_0": (2, 8),
        "lstm_0.b_0": (1, 14),
        "lstmp_0.w_0": (3, 8),
        "lstmp_0.w_1": (2, 3),
        "lstmp_0.b_0": (1, 14),
        "fc_0.w_0": (8, 6),
        "gru_0.w_0": (2, 6),
        "gru_0.b_0": (1, 6),
    }


def test_wrong_arguments_are_named() -> None:
    x = static.data("x", [-1, 4], "float32", lod_level=1)
    ids = static.data("ids", [-1, 1], "int64", lod_level=1)
    with pytest.raises(TypeError, match="'input' in sequence_pool"):
        layers.sequence_pool(ids, "sum")
    with pytest.raises(TypeError, match="'input' in sequence_concat"):
        layers.sequence_concat(x)
    with pytest.raises(ValueError, match="needs y or target_lod"):
        layers.lod_reset(x)
    with pytest.raises(ValueError, match="level of lod_append"):
        layers.lod_append(x, 3)
    with pytest.raises(ValueError, match="needs its bias"):
        layers.dynamic_lstm(x, 4, bias_attr=False)
    with pytest.raises(ValueError, match=r"h_0 of dynamic_gru must have shape \(batch size, 2\)"):
        layers.dynamic_gru(layers.fc(x, 6), 2, h_0=layers.fc(x, 3))
    with pytest.raises(ValueError, match="activation of gru_unit"):
        layers.gru_unit(layers.fc(x, 6), layers.fc(x, 2), 6, activation="gelu")
    with pytest.raises(ValueError, match="same width"):
        layers.lstm_unit(x, layers.fc(x, 2), layers.fc(x, 3))
    with pytest.raises(ValueError, match="must not be negative"):
        layers.dynamic_lstmp(x, 4, 2, cell_clip=-1.0)


def test_attention_over_words_of_each_sentence() -> None:
    ids = static.data("ids", [-1, 1], "int64", lod_level=1)
    table = floats(7, 3)
    words = layers.embedding(
        ids, size=[7, 3], param_attr=ParamAttr(initializer=NumpyArrayInitializer(table))
    )
    scores = layers.fc(words, 1, param_attr=Constant(1.0), bias_attr=False)
    weights = layers.sequence_softmax(scores)
    sentence = layers.sequence_pool(layers.elementwise_mul(words, weights, axis=0), "sum")
    numbers = RNG.integers(0, 7, (6, 1))
    found = run([sentence], {"ids": sequences(numbers)})[0]
    for row, part in zip(found, np.split(table[numbers[:, 0]], [2, 5]), strict=True):
        weight = np.exp(part.sum(1))
        np.testing.assert_allclose(row, weight @ part / weight.sum(), rtol=1e-5)


@pytest.mark.parametrize("padding_idx", [None, 2, -1])
def test_fused_embedding_seq_pool(padding_idx: int | None) -> None:
    ids = static.data("ids", [-1, 1], "int64", lod_level=1)
    table = floats(5, 3)
    attr = ParamAttr(initializer=NumpyArrayInitializer(table))
    out = fused_embedding_seq_pool(ids, [5, 3], padding_idx=padding_idx, param_attr=attr)
    numbers = np.array([[0], [2], [4], [2], [1], [3]])
    found = run([out], {"ids": sequences(numbers)})[0]
    rows = table.copy()
    if padding_idx is not None:
        rows[padding_idx] = 0
    expected = [part.sum(0) for part in np.split(rows[numbers[:, 0]], [2, 5])]
    np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.slow
def test_a_tagger_learns() -> None:
    x = static.data("x", [-1, 4], "float32", lod_level=1)
    y = static.data("y", [-1, 1], "int64", lod_level=1)
    hidden = layers.dynamic_gru(layers.fc(x, 24), 8)
    scores = layers.fc(hidden, 3)
    cost = layers.mean(layers.linear_chain_crf(scores, y, param_attr=ParamAttr(name="moves")))
    right = layers.crf_decoding(scores, ParamAttr(name="moves"), label=y)
    static.optimizer.AdamOptimizer(0.05).minimize(cost)
    data, tags = floats(12, 4), RNG.integers(0, 3, (12, 1))
    feed = {"x": sequences(data, [5, 3, 4]), "y": sequences(tags, [5, 3, 4])}
    executor = static.Executor(static.CPUPlace())
    executor.run(static.default_startup_program())
    costs = [executor.run(feed=feed, fetch_list=[cost])[0].item() for _ in range(60)]
    assert costs[-1] < 0.2 * costs[0]
    assert executor.run(feed=feed, fetch_list=[right])[0].mean() == 1


def test_edit_distance_leaves_ignored_tokens_out() -> None:
    a = static.data("a", [-1, 1], "int64", lod_level=1)
    b = static.data("b", [-1, 1], "int64", lod_level=1)
    distance, count = layers.edit_distance(a, b, normalized=False, ignored_tokens=[9])
    feed = {
        "a": sequences(np.array([[1], [9], [2], [3]]), [3, 1]),
        "b": sequences(np.array([[1], [2], [9], [4]]), [2, 2]),
    }
    found = run([distance, count], feed)
    assert found[0].tolist() == [[0.0], [1.0]]
    assert found[1].tolist() == [2]


# -- cells -------------------------------------------------------------------------------------
def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def reference(
    kind: str, x: np.ndarray, lengths: list[int], reverse: bool
) -> tuple[np.ndarray, list[np.ndarray]]:
    """Run a cell with all weights 0.2 and all biases 0.1 over [batch, steps, width]."""
    batch, steps, _ = x.shape
    hidden, cell = np.zeros((batch, 2)), np.zeros((batch, 2))
    outputs = np.zeros((batch, steps, 2))
    for t in reversed(range(steps)) if reverse else range(steps):
        total = 0.2 * (x[:, t].sum(1, keepdims=True) + hidden.sum(1, keepdims=True)) + 0.1
        if kind == "lstm":
            new_cell = cell * sigmoid(total + 1.0) + sigmoid(total) * np.tanh(total)
            new = np.tanh(new_cell) * sigmoid(total)
        else:
            gate = sigmoid(total)
            kept = (gate * hidden).sum(1, keepdims=True)
            candidate = np.tanh(0.2 * (x[:, t].sum(1, keepdims=True) + kept) + 0.1)
            new, new_cell = gate * hidden + (1 - gate) * candidate, cell
        counts = (t < np.array(lengths))[:, None]
        outputs[:, t] = new
        hidden, cell = np.where(counts, new, hidden), np.where(counts, new_cell, cell)
    return outputs, [hidden, cell] if kind == "lstm" else [hidden]


@pytest.mark.parametrize("kind", ["lstm", "gru"])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("time_major", [False, True])
@pytest.mark.parametrize("lengths", [None, [2, 4, 1]])
def test_rnn_runs_a_cell(
    kind: str, reverse: bool, time_major: bool, lengths: list[int] | None
) -> None:
    x = static.data("x", [4, -1, 3] if time_major else [-1, 4, 3], "float32")
    size = static.data("size", [-1], "int64") if lengths else None
    make = layers.LSTMCell if kind == "lstm" else layers.GRUCell
    cell = make(2, param_attr=ParamAttr(initializer=Constant(0.2)), bias_attr=Constant(0.1))
    outputs, states = layers.rnn(
        cell, x, sequence_length=size, time_major=time_major, is_reverse=reverse
    )
    data = floats(3, 4, 3)
    feed = {"x": data.swapaxes(0, 1).copy() if time_major else data}
    if lengths:
        feed["size"] = np.array(lengths)
    found = run([outputs, *(states if kind == "lstm" else [states])], feed)
    expected, last = reference(kind, data, lengths or [4] * 3, reverse)
    np.testing.assert_allclose(
        found[0], expected.swapaxes(0, 1) if time_major else expected, rtol=1e-4, atol=1e-6
    )
    for value, target in zip(found[1:], last, strict=True):
        np.testing.assert_allclose(value, target, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("lengths", [None, [2, 4, 1]])
def test_birnn_joins_two_directions(lengths: list[int] | None) -> None:
    x = static.data("x", [-1, 4, 3], "float32")
    size = static.data("size", [-1], "int64") if lengths else None
    attrs = {"param_attr": ParamAttr(initializer=Constant(0.2)), "bias_attr": Constant(0.1)}
    cells = layers.GRUCell(2, **attrs), layers.GRUCell(2, **attrs)
    outputs, states = layers.birnn(*cells, x, sequence_length=size)
    data = floats(3, 4, 3)
    feed = {"x": data} | ({"size": np.array(lengths)} if lengths else {})
    found = run([outputs, *states], feed)
    both = [reference("gru", data, lengths or [4] * 3, reverse) for reverse in (False, True)]
    expected = np.concatenate([outs for outs, _ in both], axis=-1)
    np.testing.assert_allclose(found[0], expected, rtol=1e-4, atol=1e-6)
    for value, (_, (last,)) in zip(found[1:], both, strict=True):
        np.testing.assert_allclose(value, last, rtol=1e-4, atol=1e-6)


def test_own_cell_and_named_parameters() -> None:
    class Sum(layers.RNNCell):
        def call(self, inputs: Any, states: Any, **kwargs: Any) -> Any:
            total = layers.elementwise_add(inputs, states)
            return layers.scale(total, kwargs["factor"]), total

        @property
        def state_shape(self) -> list[int]:
            return [3]

    x = static.data("x", [-1, 4, 3], "float32")
    outputs, last = layers.rnn(Sum(), x, factor=10.0)
    data = floats(2, 4, 3)
    found = run([outputs, last], {"x": data})
    np.testing.assert_allclose(found[0], 10 * data.cumsum(1), rtol=1e-5)
    np.testing.assert_allclose(found[1], data.sum(1), rtol=1e-5)
    layers.rnn(layers.GRUCell(2, param_attr=ParamAttr(name="w")), x)
    names = {p.name for p in static.default_main_program().all_parameters()}
    assert names == {
        "w_gate",
        "w_candidate",
        "GRUCell/BasicGRUUnit_0.b_0",
        "GRUCell/BasicGRUUnit_0.b_1",
    }


@pytest.mark.parametrize("levels", [1, 2])
def test_a_step_of_a_dynamic_rnn_has_one_level_less(levels: int) -> None:
    x = layers.data("x", [3], lod_level=levels)
    rnn = layers.DynamicRNN()
    with rnn.block():
        step = rnn.step_input(x)
        rnn.output(step)
    assert step.lod_level == levels - 1
    assert rnn().lod_level == levels


def test_the_shape_of_a_dynamic_rnn_memory_is_a_list() -> None:
    rnn = layers.DynamicRNN()
    with pytest.raises(TypeError, match="'shape' in DynamicRNN.memory"), rnn.block():
        rnn.memory(shape="3")
