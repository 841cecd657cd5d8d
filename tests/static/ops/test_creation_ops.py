"""Ops that create tensors, random ones included, and linear algebra."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from op_check import check_op

from fleetx.static.shapes.infer_shape import ShapeError

RNG = np.random.default_rng(2)


def uniform(*shape: int) -> np.ndarray:
    return RNG.uniform(-1.0, 1.0, shape)


def ints(*values: int) -> np.ndarray:
    return np.array(values, "int32")


def test_constants() -> None:
    check_op("fill_constant", {}, {"shape": [2, 3], "value": 1.5}, {"Out": np.full((2, 3), 1.5)})
    big = 2**53 + 1
    attrs: dict[str, Any] = {"shape": [2], "dtype": 3, "value": float(big), "str_value": str(big)}
    found = check_op("fill_constant", {}, attrs)
    assert found["Out"][0].tolist() == [big, big]
    attrs = {"value": 2.0, "dtype": 2}
    check_op("fill_constant", {"ShapeTensor": ints(3)}, attrs, {"Out": [[2, 2, 2]]})
    parts = {"ShapeTensorList": [ints(2), ints(1)]}
    check_op("fill_constant", parts, {"shape": [-1, 1]}, {"Out": np.zeros((2, 1))})
    value = {"ValueTensor": np.array([3.0])}
    check_op("fill_constant", value, {"shape": [2], "dtype": 6}, {"Out": np.array([3.0, 3.0])})
    check_op("fill_constant", {}, {"shape": [1], "dtype": 0, "value": 1.0}, {"Out": [[True]]})
    attrs = {"shape": [-1, 2], "value": 4.0, "dtype": 5}
    expected = np.full((3, 2), 4.0)
    kind = "fill_constant_batch_size_like"
    check_op(kind, {"Input": uniform(3, 5)}, attrs, {"Out": expected})
    attrs |= {"shape": [2, -1], "input_dim_idx": 1, "output_dim_idx": 1}
    check_op(kind, {"Input": uniform(3, 5)}, attrs, {"Out": np.full((2, 5), 4.0)})
    sequences = (uniform(5, 1), [[2, 3]])
    attrs = {"shape": [-1, 2], "value": 4.0}
    check_op(kind, {"Input": sequences}, attrs, {"Out": np.full((2, 2), 4.0)})


def test_constants_in_the_shape_of_another() -> None:
    x = uniform(2, 3)
    check_op("fill_any_like", {"X": x}, {"value": 2.0}, {"Out": np.full((2, 3), 2.0)})
    attrs = {"value": 2.0, "dtype": 3}
    check_op("fill_any_like", {"X": x}, attrs, {"Out": np.full((2, 3), 2)})
    check_op("fill_zeros_like", {"X": x}, {}, {"Out": np.zeros((2, 3))})
    check_op("fill_zeros_like2", {"X": x}, {"dtype": 3}, {"Out": np.zeros((2, 3))})
    attrs = {"value": [1.0, 2.0], "shape": [2, 1], "dtype": 5}
    check_op("fill", {}, attrs, {"Out": np.array([[1.0], [2.0]])})


def test_values_kept_in_the_program() -> None:
    for dtype, attr, values in (
        (5, "fp32_values", [1.5, 2.5]),
        (2, "int32_values", [1, 2]),
        (3, "int64_values", [2**40, 2]),
        (0, "bool_values", [1, 0]),
    ):
        attrs = {"shape": [2], "dtype": dtype, attr: values}
        check_op("assign_value", {}, attrs, {"Out": np.array(values)})
    x = uniform(2, 3)
    for type in ("assign", "share_data", "memcpy"):
        check_op(type, {"X": x}, {}, {"Out": x})


def test_shape_and_size() -> None:
    check_op("shape", {"Input": uniform(2, 3)}, {}, {"Out": [ints(2, 3)]})
    check_op("size", {"Input": uniform(2, 3)}, {}, {"Out": [np.array([6])]})


def test_ranges_and_matrices() -> None:
    inputs = {"Start": ints(0), "End": ints(10), "Step": ints(3)}
    check_op("range", inputs, {}, {"Out": np.arange(0, 10, 3)})
    inputs = {"Start": np.array([0.0]), "Stop": np.array([1.0]), "Num": ints(5)}
    check_op("linspace", inputs, {}, {"Out": np.linspace(0, 1, 5)})
    check_op("eye", {}, {"num_rows": 3, "num_columns": 2}, {"Out": np.eye(3, 2)})
    check_op("eye", {}, {"num_rows": 3, "dtype": 3}, {"Out": np.eye(3)})
    x = uniform(3)
    check_op("diag", {"Diagonal": x}, {}, {"Out": np.diag(x)})
    check_op("diag_v2", {"X": x}, {"offset": 1}, {"Out": np.diag(x, 1)})
    padded = np.where(np.eye(3) > 0, np.diag(x), 9.0)
    check_op("diag_v2", {"X": x}, {"padding_value": 9.0}, {"Out": padded})
    square = uniform(3, 4)
    check_op("diag_v2", {"X": square}, {"offset": -1}, {"Out": np.diag(square, -1)})
    expected = np.stack([np.diag(row, 1) for row in square])
    check_op("diag_embed", {"Input": square}, {"offset": 1}, {"Out": expected})
    check_op(
        "tril_triu", {"X": square}, {"lower": True, "diagonal": -1}, {"Out": np.tril(square, -1)}
    )
    check_op("tril_triu", {"X": square}, {"lower": False}, {"Out": np.triu(square)})
    check_op("empty", {}, {"shape": [2]}, {"Out": np.zeros(2)})
    grids = np.meshgrid(x, uniform(2) * 0 + 1, indexing="ij")
    check_op("meshgrid", {"X": [x, np.ones(2)]}, {}, {"Out": list(grids)})


# -- random numbers --------------------------------------------------------------------------------
RANDOM: dict[str, dict[str, Any]] = {
    "uniform_random": {"min": 2.0, "max": 3.0},
    "gaussian_random": {"mean": 2.5, "std": 0.5},
    "truncated_gaussian_random": {"mean": 2.5, "std": 0.5},
    "randint": {"low": 2, "high": 4, "dtype": 3},
}


@pytest.mark.parametrize("type", RANDOM)
def test_random_numbers(type: str) -> None:
    attrs = {"shape": [40, 50], **RANDOM[type]}
    values = check_op(type, {}, attrs)["Out"][0]
    again = check_op(type, {}, attrs)["Out"][0]
    assert (values != again).any()
    assert abs(values.mean() - 2.5) < 0.05
    if type != "gaussian_random":
        assert values.min() >= (1.5 if type.startswith("trunc") else 2.0)
        assert values.max() <= 3.5
    if type == "gaussian_random":
        assert abs(values.std() - 0.5) < 0.05
    seeded = [check_op(type, {}, {**attrs, "seed": 11})["Out"][0] for _ in range(2)]
    np.testing.assert_array_equal(*seeded)


def test_random_shapes_from_tensors() -> None:
    for type in ("uniform_random", "gaussian_random"):
        assert check_op(type, {"ShapeTensor": ints(2, 3)})["Out"][0].shape == (2, 3)
        parts = {"ShapeTensorList": [ints(2), ints(3)]}
        assert check_op(type, parts, {"shape": [-1, 3]})["Out"][0].shape == (2, 3)
        like = check_op(f"{type}_batch_size_like", {"Input": uniform(4, 2)}, {"shape": [-1, 3]})
        assert like["Out"][0].shape == (4, 3)


def test_uniform_diagonal() -> None:
    attrs = {"shape": [3, 3], "diag_num": 3, "diag_step": 3, "diag_val": 5.0}
    assert np.diag(check_op("uniform_random", {}, attrs)["Out"][0]).tolist() == [5.0] * 3


def test_permutations_and_draws() -> None:
    for dtype in (2, 3, 5):
        order = check_op("randperm", {}, {"n": 20, "dtype": dtype})["Out"][0]
        assert sorted(order.tolist()) == list(range(20))
    x = np.array([[0.0, 1.0]] * 50)
    np.testing.assert_array_equal(check_op("bernoulli", {"X": x})["Out"][0], x)
    drawn = check_op("multinomial", {"X": x}, {"num_samples": 1})["Out"][0]
    np.testing.assert_array_equal(drawn, np.ones((50, 1)))
    chances = np.array([[0.25, 0.75]] * 2000)
    drawn = check_op("sampling_id", {"X": chances})["Out"][0]
    assert drawn.shape == (2000,)
    assert abs(drawn.mean() - 0.75) < 0.05
    assert check_op("seed", {}, {"seed": 5})["Out"][0].tolist() == [5]
    assert check_op("seed", {}, {})["Out"][0][0] > 0


# -- linear algebra --------------------------------------------------------------------------------
def test_mul() -> None:
    x, y = uniform(2, 3), uniform(3, 2)
    check_op("mul", {"X": x, "Y": y}, {}, {"Out": x @ y})
    x, y = uniform(2, 2, 3), uniform(3, 2, 2)
    expected = np.einsum("abi,icd->abcd", x, y)
    attrs = {"x_num_col_dims": 2, "y_num_col_dims": 1}
    check_op("mul", {"X": x, "Y": y}, attrs, {"Out": expected})
    with pytest.raises(ShapeError, match="X has 6 columns, but Y has 3 rows"):
        check_op("mul", {"X": x, "Y": y}, {})


@pytest.mark.parametrize(
    ("x_shape", "y_shape"),
    [((2, 3), (3, 4)), ((2, 2, 3), (2, 3, 4)), ((2, 2, 3), (3, 4)), ((3,), (3,)), ((2, 3), (3,))],
)
def test_matmul(x_shape: tuple[int, ...], y_shape: tuple[int, ...]) -> None:
    x, y = uniform(*x_shape), uniform(*y_shape)
    product = np.atleast_1d(x @ y)
    check_op("matmul", {"X": x, "Y": y}, {"alpha": 0.5}, {"Out": product * 0.5})
    check_op("matmul_v2", {"X": x, "Y": y}, {}, {"Out": product})
    if x.ndim > 1 and y.ndim > 1:
        turned = {"X": np.swapaxes(x, -1, -2), "Y": np.swapaxes(y, -1, -2)}
        check_op("matmul", turned, {"transpose_X": True, "transpose_Y": True}, {"Out": product})
        check_op("matmul_v2", turned, {"trans_x": True, "trans_y": True}, {"Out": product})


def test_matmul_of_transposed_vectors_and_refusals() -> None:
    x = uniform(3)
    attrs = {"transpose_X": True, "transpose_Y": True}
    check_op("matmul", {"X": x, "Y": x}, attrs, {"Out": np.outer(x, x)})
    with pytest.raises(ShapeError, match="X has 3 columns, but Y has 2 rows"):
        check_op("matmul", {"X": uniform(2, 3), "Y": uniform(2, 3)})


def test_products() -> None:
    x, y = uniform(2, 3), uniform(2, 3)
    batch, other = uniform(2, 2, 3), uniform(2, 3, 2)
    check_op("bmm", {"X": batch, "Y": other}, {}, {"Out": batch @ other})
    check_op("mv", {"X": x, "Vec": y[0]}, {}, {"Out": x @ y[0]})
    check_op("dot", {"X": x, "Y": y}, {}, {"Out": (x * y).sum(1, keepdims=True)})
    inputs = {"Input": uniform(2, 2), "X": x, "Y": y.T}
    expected = 2 * inputs["Input"] + 0.5 * x @ y.T
    check_op("addmm", inputs, {"Alpha": 0.5, "Beta": 2.0}, {"Out": expected})
    check_op("kron", {"X": x, "Y": y}, {}, {"Out": np.kron(x, y)})
    check_op("cross", {"X": x, "Y": y}, {}, {"Out": np.cross(x, y)})
    check_op("cross", {"X": x.T, "Y": y.T}, {"dim": 0}, {"Out": np.cross(x, y).T})
    equation = {"equation": "ij,kj->ik"}
    check_op("einsum", {"Operands": [x, y]}, equation, {"Out": x @ y.T})
    weight, bias = uniform(4, 3, 3), uniform(1, 4)
    expected = np.einsum("ni,oij,nj->no", x, weight, y) + bias
    inputs = {"X": x, "Y": y, "Weight": weight, "Bias": bias}
    check_op("bilinear_tensor_product", inputs, {}, {"Out": expected})
    maps, others = uniform(2, 3, 2, 2), uniform(2, 1, 2, 2)
    expected = np.einsum("nchw,ndhw->ncd", maps, others) / 4
    check_op("fsp", {"X": maps, "Y": others}, {}, {"Out": expected})


def test_norms_and_distances() -> None:
    x, y = uniform(2, 3), uniform(2, 3)
    check_op("dist", {"X": x, "Y": y}, {}, {"Out": [[np.linalg.norm(x - y)]]})
    length = np.sqrt((x**2).sum(1, keepdims=True) + 1e-10)
    check_op("norm", {"X": x}, {"axis": 1}, {"Norm": length, "Out": x / length})
    check_op("p_norm", {"X": x}, {"porder": 3.0}, {"Out": np.linalg.norm(x, 3, 1)})
    attrs = {"porder": 2.0, "asvector": True}
    check_op("p_norm", {"X": x}, attrs, {"Out": [[np.linalg.norm(x)]]})
    x_norm, y_norm = (np.linalg.norm(v, axis=1, keepdims=True) for v in (x, y))
    cosine = (x * y).sum(1, keepdims=True) / x_norm / y_norm
    check_op("cos_sim", {"X": x, "Y": y}, {}, {"Out": cosine, "XNorm": x_norm, "YNorm": y_norm})
    check_op("cos_sim", {"X": x, "Y": y[:1]}, {})
    squared = ((x - y) ** 2).sum(1, keepdims=True)
    check_op("squared_l2_distance", {"X": x, "Y": y}, {}, {"sub_result": x - y, "Out": squared})


def test_square_matrices() -> None:
    x = uniform(2, 3, 3) + 2 * np.eye(3)
    check_op("trace", {"Input": x}, {}, {"Out": np.trace(x, axis1=-2, axis2=-1)})
    check_op("trace", {"Input": x[0]}, {"axis1": 0, "axis2": 1}, {"Out": [[np.trace(x[0])]]})
    attrs = {"offset": 1, "axis1": 1, "axis2": 2}
    check_op("diagonal", {"Input": x}, attrs, {"Out": np.diagonal(x, 1, 1, 2)})
    check_op("inverse", {"Input": x}, {}, {"Output": np.linalg.inv(x)})
    check_op("matrix_power", {"X": x}, {"n": 3}, {"Out": np.linalg.matrix_power(x, 3)})
    y = uniform(2, 3, 1)
    check_op("solve", {"X": x, "Y": y}, {}, {"Out": np.linalg.solve(x, y)})
    check_op("determinant", {"Input": x}, {}, {"Out": np.linalg.det(x)})
    positive = x @ x.transpose(0, 2, 1)
    factor = np.linalg.cholesky(positive)
    # A difference in one element leaves the symmetric matrices, so only values are compared.
    check_op("cholesky", {"X": positive}, {}, {"Out": factor}, grad_of=[])
    upper = factor.transpose(0, 2, 1)
    check_op("cholesky", {"X": positive}, {"upper": True}, {"Out": upper}, grad_of=[])
