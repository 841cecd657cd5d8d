"""Products, norms and matrices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fleetx.exports import export_defined
from fleetx.static import layers
from fleetx.static.building.adapted import adapted
from fleetx.static.building.layer_helper import LayerHelper
from fleetx.static.building.one_op import one_op
from fleetx.static.building.op_layer import op_layer
from fleetx.static.graph.variable import Variable
from fleetx.static.tensor.common import binary, unary

bmm = layers.bmm
cholesky = layers.cholesky
dot = layers.dot
histogram = layers.histogram
kron = layers.kron
t = layers.t
addmm = adapted(layers.addmm, "input, x, y, beta, alpha, name")
cross = adapted(layers.cross, "x -> input, y -> other, axis -> dim, name")
dist = adapted(layers.dist, "x, y, p, name")
trace = adapted(layers.trace, "x -> input, offset, axis1 -> dim1, axis2 -> dim2, name")
inverse = adapted(layers.inverse, "x -> input, name")


def matmul(
    x: Variable,
    y: Variable,
    transpose_x: bool = False,
    transpose_y: bool = False,
    name: str | None = None,
) -> Variable:
    """Return the product of matrices, or of batches of them."""
    attrs = {"trans_x": transpose_x, "trans_y": transpose_y}
    return binary("matmul_v2", x, y, attrs, name=name)


def mm(input: Variable, mat2: Variable, name: str | None = None) -> Variable:
    """Return the product of two matrices."""
    return binary("matmul_v2", input, mat2, name=name, layer="mm")


@op_layer("x vec")
def mv(x: Variable, vec: Variable, name: str | None = None) -> Variable:
    """Return the product of a matrix and a vector."""


def det(x: Variable, name: str | None = None) -> Variable:
    """Return the determinant."""
    return unary("determinant", x, name=name, slot="Input")


@op_layer("x", x=Variable)
def matrix_power(x: Variable, n: int, name: str | None = None) -> Variable:
    """Return the matrix multiplied n times with itself."""


def solve(x: Variable, y: Variable, name: str | None = None) -> Variable:
    """Return z with x @ z = y."""
    return binary("solve", x, y, name=name)


def einsum(equation: str, *operands: Variable) -> Variable:
    """Return the sum of products that an equation such as 'ij,jk->ik' describes."""
    return one_op(
        "einsum", {"Operands": list(operands)}, {"equation": equation}, dtype=operands[0].dtype
    )


def norm(
    x: Variable,
    p: float | str = "fro",
    axis: int | Sequence[int] | None = None,
    keepdim: bool = False,
    name: str | None = None,
) -> Variable:
    """Return the Frobenius norm ('fro') or the p-norm, over all elements or along axes."""
    if isinstance(axis, list | tuple) and len(axis) == 1:
        axis = axis[0]
    if p == "fro":
        if isinstance(axis, int):
            return _p_norm(x, 2.0, axis, keepdim, name)
        attrs = {
            "dim": [0] if axis is None else list(axis),
            "keep_dim": keepdim,
            "reduce_all": axis is None,
        }
        return unary("frobenius_norm", x, attrs, name=name)
    if not isinstance(p, int | float):
        raise ValueError(f"p of norm must be 'fro' or a number, not {p!r}.")
    if axis is None or isinstance(axis, int):
        return _p_norm(x, float(p), axis, keepdim, name)
    return _p_matrix_norm(x, float(p), list(axis), keepdim, name)


def _p_norm(x: Variable, p: float, axis: int | None, keepdim: bool, name: Any) -> Variable:
    attrs = {
        "porder": p,
        "axis": -1 if axis is None else axis,
        "keepdim": keepdim,
        "asvector": axis is None,
    }
    return unary("p_norm", x, attrs, name=name)


def _p_matrix_norm(x: Variable, p: float, axes: list[int], keepdim: bool, name: Any) -> Variable:
    """Return (sum of |x|**p over the axes)**(1/p), with the limits for an infinite p."""
    size = layers.abs(x)
    if p == float("inf"):
        return layers.reduce_max(size, dim=axes, keep_dim=keepdim)
    if p == float("-inf"):
        return layers.reduce_min(size, dim=axes, keep_dim=keepdim)
    total = layers.reduce_sum(layers.pow(size, p), dim=axes, keep_dim=keepdim)
    out = LayerHelper("p_matrix_norm", name=name).create_variable_for_type_inference(x.dtype)
    return one_op("pow", {"X": total}, {"factor": 1.0 / p}, dtype=x.dtype, out=out)


export_defined(globals(), "bmm", "cholesky", "dot", "histogram", "kron", "t")
