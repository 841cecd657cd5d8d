"""Layers of linear algebra: products, norms, distances."""

from __future__ import annotations

from typing import Any

from fleetx.exports import export_defined
from fleetx.static.building.argument_checks import (
    check_two_axes,
    check_variable_and_dtype,
    optional,
)
from fleetx.static.building.layer_helper import LayerHelper
from fleetx.static.building.one_op import FLOATS, NUMBERS, one_op
from fleetx.static.building.op_layer import changed, op_layer
from fleetx.static.errors import ArgumentError
from fleetx.static.graph.variable import Variable


@op_layer("x y", x=FLOATS, y=FLOATS)
def mul(
    x: Variable,
    y: Variable,
    x_num_col_dims: int = 1,
    y_num_col_dims: int = 1,
    name: str | None = None,
) -> Variable:
    """Return the product of two tensors as matrices; `num_col_dims` dimensions are the rows."""


@op_layer(
    "x y",
    attrs={"transpose_X": "transpose_x", "transpose_Y": "transpose_y"},
    x=FLOATS,
    y=FLOATS,
)
def matmul(
    x: Variable,
    y: Variable,
    transpose_x: bool = False,
    transpose_y: bool = False,
    alpha: float = 1.0,
    name: str | None = None,
) -> Variable:
    """Return alpha * x @ y over the last two dimensions, with optional transposes."""


@op_layer("x y")
def bmm(x: Variable, y: Variable, name: str | None = None) -> Variable:
    """Return batched matrix products."""


@op_layer("x input y", attrs={"Alpha": "alpha", "Beta": "beta"}, input=FLOATS, x=FLOATS, y=FLOATS)
def addmm(
    input: Variable,
    x: Variable,
    y: Variable,
    alpha: float = 1.0,
    beta: float = 1.0,
    name: str | None = None,
) -> Variable:
    """Return beta * input + alpha * x @ y."""


def dot(x: Variable, y: Variable, name: str | None = None) -> Variable:
    """Return inner products over the last dimension."""
    if x is None or y is None:
        raise ArgumentError("dot needs x and y.")
    check_variable_and_dtype(x, "x", NUMBERS, "dot")
    check_variable_and_dtype(y, "y", NUMBERS, "dot")
    helper = LayerHelper("dot", name=name)
    out = helper.create_named(name, x.dtype)
    helper.append_op(type="dot", inputs={"X": x, "Y": y}, outputs={"Out": out})
    return out


def t(input: Variable, name: str | None = None) -> Variable:
    """Return the transposed matrix; a vector is returned unchanged."""
    if len(input.shape) > 2:
        raise ValueError(f"t takes at most 2 dimensions, not {input.shape}; use transpose.")
    check_variable_and_dtype(input, "input", NUMBERS, "transpose")
    helper = LayerHelper("t", name=name)
    if len(input.shape) == 1:
        return input
    out, _ = helper.outputs_of(
        "transpose2", {"X": [input]}, {"axis": [1, 0]}, Out=input.dtype, XShape=input.dtype
    )
    return out


@op_layer("X=input Y=other")
def cross(input: Variable, other: Variable, dim: int | None = None) -> Variable:
    """Return cross products along a dimension of size 3, the first one by default."""


@op_layer("x y", x=NUMBERS, y=NUMBERS, out=optional(NUMBERS))
def kron(
    x: Variable, y: Variable, out: Variable | None = None, name: str | None = None
) -> Variable:
    """Return the Kronecker product."""


@op_layer("x y", x=FLOATS, y=FLOATS, p=float | int)
def dist(x: Variable, y: Variable, p: float = 2) -> Variable:
    """Return the p-norm of x - y."""


@op_layer("x", op="norm", output="Out Norm")
def l2_normalize(
    x: Variable, axis: int | None, epsilon: float = 1e-12, name: str | None = None
) -> Variable:
    """Normalise x to unit L2 norm along an axis."""
    check_variable_and_dtype(x, "X", FLOATS, "norm")
    if len(x.shape) == 1:
        axis = 0
    return changed(axis=1 if axis is None else axis)


def trace(
    input: Variable,
    offset: int = 0,
    dim1: int = 0,
    dim2: int = 1,
    out: Variable | None = None,
    name: str | None = None,
) -> Variable:
    """Return the sums of the diagonals over two dimensions."""
    check_variable_and_dtype(input, "Input", NUMBERS, "trace")
    count = len(input.shape)
    if count < 2:
        raise ArgumentError(f"trace needs 2 dimensions or more, not {input.shape}.")
    check_two_axes("trace", count, dim1=dim1, dim2=dim2)
    attrs = {"offset": offset, "dim1": dim1, "dim2": dim2}
    return one_op("trace", {"Input": [input]}, attrs, dtype=input.dtype, name=name, out=out)


@op_layer("x", x=FLOATS)
def cholesky(x: Variable, upper: bool = False, name: str | None = None) -> Variable:
    """Return the Cholesky factor of positive definite matrices."""


@op_layer("input", output="Output", input=FLOATS)
def inverse(input: Variable, name: str | None = None) -> Variable:
    """Return inverse matrices."""


@op_layer("X=input", element_type="int64", input=NUMBERS)
def histogram(
    input: Variable, bins: int = 100, min: int = 0, max: int = 0, name: Any = None
) -> Variable:
    """Return the histogram of the elements over `bins` equal ranges."""


export_defined(globals())
