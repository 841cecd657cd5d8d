"""Math and tensor layers append what Paddle 1.8.5 appends, and refuse wrong arguments."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import layer_cases
import numpy as np
import pytest

from fleetx import static
from fleetx.static import layers as L

PADDLE = json.loads(
    (Path(__file__).parent / "data" / "layers_of_paddle_1_8_5.json").read_text(encoding="utf-8")
)


@pytest.fixture(scope="module")
def ours() -> dict[str, Any]:
    found = layer_cases.describe(static, static.unique_name.guard, L, static.data)
    return json.loads(json.dumps(found))


@pytest.mark.parametrize("name", sorted(PADDLE))
def test_same_ops_names_and_shapes_as_paddle(name: str, ours: dict[str, Any]) -> None:
    ops, startup, shapes = ours[name]
    assert ops == PADDLE[name][0]
    assert startup == PADDLE[name][1]
    assert shapes == PADDLE[name][2]


def run(outs: Any, feed: dict[str, np.ndarray] | None = None) -> list[np.ndarray]:
    executor = static.Executor(static.CPUPlace())
    executor.run(static.default_startup_program())
    fetch = list(outs) if isinstance(outs, list | tuple) else [outs]
    return executor.run(static.default_main_program(), feed=feed or {}, fetch_list=fetch)


@pytest.fixture
def _fresh() -> Iterator[None]:
    with (
        static.program_guard(static.Program(), static.Program()),
        static.scope_guard(static.Scope()),
        static.unique_name.guard(),
    ):
        yield


pytestmark = pytest.mark.usefixtures("_fresh")


WRONG_TYPE: dict[str, Any] = {
    "relu": lambda x, i, a: L.relu(a),
    "sigmoid of ints": lambda x, i, a: L.sigmoid(i),
    "elementwise_add": lambda x, i, a: L.elementwise_add(x, a),
    "mean": lambda x, i, a: L.mean(i),
    "reduce_sum": lambda x, i, a: L.reduce_sum(a),
    "matmul": lambda x, i, a: L.matmul(x, i),
    "mul": lambda x, i, a: L.mul(a, x),
    "cast": lambda x, i, a: L.cast(a, "int64"),
    "concat": lambda x, i, a: L.concat([x, a]),
    "reshape": lambda x, i, a: L.reshape(x, 4),
    "transpose": lambda x, i, a: L.transpose(x, 1),
    "split": lambda x, i, a: L.split(x, 2.5),
    "fill_constant": lambda x, i, a: L.fill_constant(3, "float32", 1.0),
    "fill_constant dtype": lambda x, i, a: L.fill_constant([3], "complex64", 1.0),
    "one_hot": lambda x, i, a: L.one_hot(x, 3),
    "logical_and": lambda x, i, a: L.logical_and(x, x),
    "clip_by_norm": lambda x, i, a: L.clip_by_norm(x, 1),
    "eye": lambda x, i, a: L.eye(-1),
    "range": lambda x, i, a: L.range("0", 5, 1, "int32"),
    "shard_index": lambda x, i, a: L.shard_index(x, 20, 2, 0),
    "create_parameter": lambda x, i, a: L.create_parameter(3, "float32"),
}


@pytest.mark.parametrize("name", WRONG_TYPE)
def test_wrong_types_are_refused_by_name(name: str) -> None:
    x, i = static.data("x", [2, 2]), static.data("i", [2, 2], "int64")
    with pytest.raises(TypeError, match=name.split()[0]):
        WRONG_TYPE[name](x, i, np.ones((2, 2), "float32"))
    assert static.default_main_program().global_block().ops == []


WRONG_VALUE: dict[str, Any] = {
    "prelu": lambda x: L.prelu(x, "some"),
    "transpose": lambda x: L.transpose(x, [0]),
    "reshape": lambda x: L.reshape(x, [-1, -1]),
    "split": lambda x: L.split(x, 4, 1),
    "shard_index": lambda x: L.shard_index(L.cast(x, "int64"), 20, 2, 2),
    "flatten": lambda x: L.flatten(x, 3),
    "maxout": lambda x: L.maxout(x, 2, axis=2),
    "pad2d": lambda x: L.pad2d(x, mode="wrap"),
    "randint": lambda x: L.randint(5, 3),
    "ones": lambda x: L.ones([0], "float32"),
    "expand": lambda x: L.expand(x, [0, 1]),
    "trace": lambda x: L.trace(x, dim1=0, dim2=0),
    "matmul": lambda x: L.matmul(x, x),
    "elementwise_add": lambda x: L.elementwise_add(x, L.fill_constant([4], "float32", 1.0)),
    "crop_tensor": lambda x: L.crop_tensor(x, [0, 1]),
}


@pytest.mark.parametrize("name", WRONG_VALUE)
def test_wrong_values_are_refused_by_name(name: str) -> None:
    x = static.data("x", [2, 3])
    with pytest.raises(ValueError, match=name):
        WRONG_VALUE[name](x)


def test_shapes_known_only_when_the_program_runs() -> None:
    x = static.data("x", [None, None])
    size = L.shape(x)
    rows = L.slice(size, [0], [0], [1])
    outs = [
        L.reshape(x, [rows, -1, 1]),
        L.fill_constant(size, "float32", 2.0),
        L.expand(x, [rows, 1]),
        L.slice(x, [0], [L.cast(L.fill_constant([1], "int64", 1), "int32")], [rows]),
        L.uniform_random([rows, 3]),
        L.range(0, rows, 1, "int32"),
        L.topk(x, L.fill_constant([1], "int32", 2))[0],
        L.crop_tensor(x, [rows, 2]),
        L.one_hot(L.range(0, 3, 1, "int64")[:, None], L.fill_constant([1], "int32", 4)),
    ]
    value = np.arange(6, dtype="float32").reshape(2, 3)
    shapes = [r.shape for r in run(outs, {"x": value})]
    expected = [(2, 3, 1), (2, 3), (4, 3), (1, 3), (2, 3), (2,), (2, 2), (2, 2), (3, 4)]
    assert shapes == expected


def test_step_counter_counts_runs() -> None:
    counter = L.autoincreased_step_counter(begin=3, step=2)
    assert L.autoincreased_step_counter(begin=3, step=2) is counter
    executor = static.Executor()
    executor.run(static.default_startup_program())
    main = static.default_main_program()
    seen = [executor.run(main, fetch_list=[counter])[0].item() for _ in range(3)]
    assert seen == [4, 6, 8]


def test_assign_into_an_existing_variable() -> None:
    total = L.create_global_var([1], 1.0, "float32", persistable=True)
    L.assign(total + 2.0, total)
    executor = static.Executor()
    executor.run(static.default_startup_program())
    main = static.default_main_program()
    seen = [executor.run(main, fetch_list=[total])[0].item() for _ in range(3)]
    assert seen == [3.0, 5.0, 7.0]


def test_random_layers_follow_their_seeds() -> None:
    outs = [
        L.uniform_random([20], seed=3),
        L.uniform_random([20], seed=3),
        L.gaussian_random([20]),
        L.gaussian_random([20]),
        L.randn([20]),
        L.randperm(20),
        L.randint(0, 4, [20]),
        L.bernoulli(L.fill_constant([20], "float32", 1.0)),
        L.sampling_id(L.fill_constant([5, 4], "float32", 0.25)),
    ]
    first, second = run(outs), run(outs)
    np.testing.assert_array_equal(first[0], first[1])
    np.testing.assert_array_equal(first[0], second[0])
    assert (first[2] != first[3]).any()
    assert (first[2] != second[2]).any()
    np.testing.assert_array_equal(first[4], second[4])
    assert sorted(first[5]) == list(range(20))
    assert set(first[6]) <= {0, 1, 2, 3}
    assert first[7].tolist() == [1.0] * 20
    assert first[8].shape == (5,)
