"""Operators and indices of Variables: values against NumPy, and the ops they append."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from fleetx import static
from fleetx.static import layers as L

A = np.array([[1.5, -2.0, 3.0, 0.5], [4.0, 0.25, -6.0, 2.0], [0.5, 1.0, 2.0, 3.0]], "float32")
B = np.array([[2.0, 5.0, -1.0, 1.0], [1.0, 0.5, 2.0, 4.0], [3.0, 1.0, 2.0, 5.0]], "float32")
N = np.array([[7, -3, 4], [9, 2, 5]], "int64")


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    with (
        static.program_guard(static.Program(), static.Program()),
        static.scope_guard(static.Scope()),
        static.unique_name.guard(),
    ):
        yield


def run(build: Any, batch: bool = False, **feed: np.ndarray) -> np.ndarray:
    variables = [
        static.data(
            name, ([None] if batch else [value.shape[0]]) + list(value.shape[1:]), value.dtype
        )
        for name, value in feed.items()
    ]
    out = build(*variables)
    return static.Executor().run(static.default_main_program(), feed=feed, fetch_list=[out])[0]


def op_types() -> list[str]:
    return [op.type for op in static.default_main_program().global_block().ops]


BINARY: dict[str, Any] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "number first": lambda a, b: 2 / b + 3 - (1 - a) * 2,
    "pow": lambda a, b: (a * a) ** b,
    "number to the power": lambda a, b: 2.0**b,
    "mod": lambda a, b: a % b,
    "floordiv": lambda a, b: a // b,
    "reversed mod": lambda a, b: 7.0 % b,
    "less": lambda a, b: a < b,
    "less_equal": lambda a, b: a <= 1.5,
    "greater": lambda a, b: a > b,
    "greater_equal": lambda a, b: a >= b,
    "equal": lambda a, b: a == b,
    "not_equal": lambda a, b: a != 2.0,
    "negative": lambda a, b: -a,
    "row": lambda a, b: a + b[0],
    "numpy number": lambda a, b: a * np.float32(2.5) + np.float32(1),
    "mask": lambda a, b: (a > 0) & (b > 1) | ~(a > b) ^ (a == b),
}


@pytest.mark.parametrize("batch", [False, True])
@pytest.mark.parametrize("name", BINARY)
def test_operators(name: str, batch: bool) -> None:
    found = run(BINARY[name], batch, a=A, b=B)
    expected = BINARY[name](A, B)
    assert found.dtype == expected.dtype
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_numbers_become_one_scale_op() -> None:
    x = static.data("x", [None, 3])
    _ = (1 - (x * 2 + 3) / 4) - 5
    assert op_types() == ["scale"] * 5
    _ = 1 / x
    assert op_types()[5:] == ["fill_constant_batch_size_like", "elementwise_div"]


def test_arrays_are_kept_in_the_program() -> None:
    np.testing.assert_allclose(run(lambda a: a + B, a=A), A + B)
    static.default_main_program().global_block().ops.clear()
    np.testing.assert_allclose(run(lambda c: B - c, c=A), B - A)


def test_whole_numbers_stay_whole() -> None:
    np.testing.assert_array_equal(run(lambda n: n / 2, n=N), np.trunc(N / 2))
    np.testing.assert_array_equal(run(lambda m: m // 2 + m % 4, m=N), N // 2 + N % 4)
    x = static.data("whole", [2], "int64")
    with pytest.raises(ValueError, match=r"0.5 is not a whole number"):
        x * 0.5


def test_the_right_operand_takes_the_type_of_the_left() -> None:
    found = run(lambda a, n: a[:2, :3] + n, a=A, n=N)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, A[:2, :3] + N)


def test_a_batch_is_laid_on_the_first_dimensions() -> None:
    x, y = np.ones((2, 3, 4), "float32"), np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], "float32")
    np.testing.assert_allclose(run(lambda x, y: x * y, True, x=x, y=y), x * y[..., None])


def test_matmul_operator() -> None:
    np.testing.assert_allclose(run(lambda a, b: a @ L.transpose(b, [1, 0]), a=A, b=B), A @ B.T)


def test_foreign_operands() -> None:
    x = static.data("x", [2])
    with pytest.raises(TypeError):
        x + "text"
    assert (x == "text") is False
    assert (x == None) is False  # noqa: E711
    assert x in {x: 1}
    with pytest.raises(TypeError, match="not iterable"):
        list(x)


def test_astype() -> None:
    assert run(lambda a: a.astype("int64"), a=A).tolist() == A.astype("int64").tolist()


INDICES: dict[str, Any] = {
    "int": lambda a: a[1],
    "last": lambda a: a[-1],
    "two ints": lambda a: a[1, 2:3],
    "negative int": lambda a: a[-2, 1:],
    "slice": lambda a: a[1:3],
    "columns": lambda a: a[:, 1:-1],
    "steps": lambda a: a[::2, 1::2],
    "backwards": lambda a: a[::-1],
    "backwards columns": lambda a: a[:, ::-1],
    "backwards by two": lambda a: a[:, ::-2],
    "backwards from": lambda a: a[:, 2::-1],
    "backwards after an int": lambda a: a[0, ::-1],
    "ellipsis": lambda a: a[..., 1],
    "new axis": lambda a: a[:, None, 1:3],
    "new axes": lambda a: a[None, 1, ..., None],
    "everything": lambda a: a[:],
    "numpy int": lambda a: a[np.int64(2)],
}


@pytest.mark.parametrize("batch", [False, True])
@pytest.mark.parametrize("name", INDICES)
def test_indices(name: str, batch: bool) -> None:
    np.testing.assert_array_equal(run(INDICES[name], batch, a=A), INDICES[name](A))


def test_one_element_has_shape_one() -> None:
    assert run(lambda a: a[1, 2], a=A).tolist() == [-6.0]


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_variables_as_indices(dtype: str) -> None:
    i = np.array([2], dtype)
    np.testing.assert_array_equal(run(lambda a, i: a[i], a=A, i=i), A[2])
    np.testing.assert_array_equal(run(lambda b, j: b[j : j + 1, 1:3], b=A, j=i), A[2:3, 1:3])


def test_vectors_and_masks_as_indices() -> None:
    rows = np.array([2, 0, 2], "int64")
    np.testing.assert_array_equal(run(lambda a, i: a[i], a=A, i=rows), A[rows])
    np.testing.assert_array_equal(run(lambda b, c: b[b > c], b=A, c=B), A[A > B])


def test_gradients_flow_through_slices() -> None:
    x = static.data("x", [3, 4])
    x.stop_gradient = False
    loss = L.reduce_sum(x[1:, ::2] * 2) + L.reduce_sum(x[0])
    grad = static.gradients([loss], [x])
    found = static.Executor().run(static.default_main_program(), feed={"x": A}, fetch_list=grad)[0]
    expected = np.zeros_like(A)
    expected[1:, ::2] = 2
    expected[0] = 1
    np.testing.assert_array_equal(found, expected)


def test_indices_that_cannot_be() -> None:
    x = static.data("x", [2, 3])
    with pytest.raises(IndexError, match="index 2 is outside dimension 0"):
        x[2]
    with pytest.raises(IndexError, match="too many indices"):
        x[0, 0, 0]
    with pytest.raises(TypeError, match="ints, slices"):
        x["a"]
