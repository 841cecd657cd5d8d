"""Methods of Variables in the style of Paddle 2."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from fleetx import static
from fleetx.static import tensor
from fleetx.static.graph.variable_methods import METHODS

A = np.array([[1.5, -2.0, 3.0], [4.0, 0.25, -6.0]], "float32")


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    with (
        static.program_guard(static.Program(), static.Program()),
        static.scope_guard(static.Scope()),
        static.unique_name.guard(),
    ):
        yield


def test_every_method_is_a_function_of_tensors() -> None:
    assert [name for name in METHODS if not callable(getattr(tensor, name, None))] == []
    own = {"name", "shape", "dtype", "type", "block", "op", "persistable", "stop_gradient"}
    assert not own & set(METHODS)


CASES: dict[str, tuple[Any, np.ndarray]] = {
    "reshape": (lambda x: x.reshape([3, -1]), A.reshape(3, 2)),
    "sum": (lambda x: x.sum(axis=1), A.sum(1)),
    "chain": (lambda x: x.abs().sqrt().max(axis=0), np.sqrt(np.abs(A)).max(0)),
    "transpose": (lambda x: x.transpose([1, 0]), A.T),
    "T": (lambda x: x.T, A.T),
    "unsqueeze": (lambda x: x.unsqueeze(1), A[:, None]),
    "matmul": (lambda x: x.matmul(x.T), A @ A.T),
    "detach": (lambda x: x.detach() * 2, A * 2),
}


@pytest.mark.parametrize("name", CASES)
def test_methods(name: str) -> None:
    build, expected = CASES[name]
    out = build(static.data("x", [2, 3]))
    found = static.Executor().run(static.default_main_program(), feed={"x": A}, fetch_list=[out])
    np.testing.assert_allclose(found[0], expected, rtol=1e-6)


def test_detach_stops_gradients() -> None:
    x = static.data("x", [2, 3])
    x.stop_gradient = False
    grads = static.gradients([(x * x.detach()).sum()], [x])
    found = static.Executor().run(static.default_main_program(), feed={"x": A}, fetch_list=grads)
    np.testing.assert_allclose(found[0], A)
    assert x.ndimension() == 2
