"""Python functions inside a program: values, gradients, sequences, and calls without outputs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from fleetx import static
from fleetx.static import layers as L
from fleetx.static.readers.lod_tensor import create_lod_tensor

X = np.array([[0.5, -1.0], [2.0, 0.25]], "float32")


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    with (
        static.program_guard(static.Program(), static.Program()),
        static.scope_guard(static.Scope()),
        static.unique_name.guard(),
    ):
        yield


def output(name: str, shape: list[int], dtype: str = "float32") -> Any:
    return (
        static.default_main_program()
        .current_block()
        .create_var(name=name, shape=shape, dtype=dtype)
    )


def run(*fetch: Any, feed: dict[str, Any]) -> list[np.ndarray]:
    return static.Executor().run(static.default_main_program(), feed=feed, fetch_list=list(fetch))


def test_value_and_gradient() -> None:
    x = static.data("x", [2, 2])
    x.stop_gradient = False
    y = output("y", [2, 2])
    L.py_func(
        lambda a: np.tanh(a),
        x,
        y,
        lambda value, grad: np.array(grad) * (1 - np.square(np.array(value))),
        skip_vars_in_backward_input=x,
    )
    (grad,) = static.gradients([L.reduce_sum(y * 3)], [x])
    value, slope = run(y, grad, feed={"x": X})
    np.testing.assert_allclose(value, np.tanh(X), rtol=1e-6)
    np.testing.assert_allclose(slope, 3 * (1 - np.tanh(X) ** 2), rtol=1e-5)


def test_several_inputs_and_outputs() -> None:
    x, n = static.data("x", [2, 2]), static.data("n", [2, 2], "int64")
    total, twice = output("total", [2, 2]), output("twice", [2, 2], "int64")
    L.py_func(lambda a, b: (np.array(a) + np.array(b), np.array(b) * 2), [x, n], [total, twice])
    whole = np.array([[1, 2], [3, 4]])
    found = run(total, twice, feed={"x": X, "n": whole})
    np.testing.assert_allclose(found[0], X + whole)
    np.testing.assert_array_equal(found[1], whole * 2)


def test_a_function_that_only_looks_is_called_in_every_run() -> None:
    seen: list[Any] = []
    x = static.data("x", [None, 2], lod_level=1)
    L.py_func(lambda a: seen.append(a.recursive_sequence_lengths()), x, None)
    y = x * 2
    for lengths in ([[1, 1]], [[2]]):
        run(y, feed={"x": create_lod_tensor(X, lengths, static.CPUPlace())})
    assert seen == [[[1, 1]], [[2]]]


def test_refusals() -> None:
    x = static.data("x", [2, 2])
    with pytest.raises(TypeError, match="Out"):
        L.py_func(np.tanh, x, "y")
    with pytest.raises(ValueError, match="needs a shape"):
        L.py_func(np.tanh, x, static.default_main_program().global_block().create_var(name="z"))
    with pytest.raises(TypeError, match="function"):
        L.py_func("tanh", x, output("y", [2, 2]))
    with pytest.raises(ValueError, match="neither an input nor an output"):
        L.py_func(np.tanh, x, output("w", [2, 2]), np.tanh, static.data("other", [1]))
