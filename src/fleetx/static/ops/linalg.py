"""Products of matrices, norms and decompositions."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from fleetx.static.graph.op_registry import op
from fleetx.static.shapes.infer_rules import (
    broadcast_shape,
    input_var,
    known,
    known_product,
    refuse,
    same_as,
    set_output,
)


@known("X", "Y")
def _mul_rule(op: Any, block: Any, x: Any, y: Any) -> None:
    xn, yn = op.attrs["x_num_col_dims"], op.attrs["y_num_col_dims"]
    if len(x.shape) <= xn or len(y.shape) <= yn:
        raise refuse(op, block, f"they need more than {xn} and {yn} dimensions.")
    inner, rows = known_product(x.shape[xn:]), known_product(y.shape[:yn])
    if inner != rows and inner >= 0 and rows >= 0:
        raise refuse(op, block, f"X has {inner} columns, but Y has {rows} rows.")
    set_output(op, block, "Out", x.shape[:xn] + y.shape[yn:], x.dtype)


@op(
    "mul",
    inputs="X Y",
    attrs={
        "scale_x": 1.0,
        "scale_y": [1.0],
        "scale_out": 1.0,
        "use_mkldnn": False,
        "force_fp32_output": False,
    },
    infer=_mul_rule,
)
def mul(x: Tensor, y: Tensor, *, x_num_col_dims: int = 1, y_num_col_dims: int = 1) -> Tensor:
    """The product of two tensors as matrices: the first `num_col_dims` dimensions are rows."""
    if x.dim() == 2 and y.dim() == 2 and x_num_col_dims == 1:
        return torch.mm(x, y)
    head, tail = x.shape[:x_num_col_dims], y.shape[y_num_col_dims:]
    left = x.reshape(math.prod(head), math.prod(x.shape[x_num_col_dims:]))
    right = y.reshape(math.prod(y.shape[:y_num_col_dims]), math.prod(tail))
    return torch.mm(left, right).reshape(head + tail)


def _matmul_rule(x_flag: str, y_flag: str) -> Any:
    @known("X", "Y")
    def rule(op: Any, block: Any, x: Any, y: Any) -> None:
        left, right = x.shape, y.shape
        if not left or not right:
            raise refuse(op, block, "both need at least one dimension.")
        keep = op.type == "matmul"  # the older op keeps a transposed vector as a matrix
        tx, ty = op.attrs[x_flag], op.attrs[y_flag]
        drop_row = drop_column = False
        if len(left) == 1:
            drop_row = not (tx and keep)
            left = (left[0], 1) if tx and keep else (1, left[0])
        elif tx:
            left = (*left[:-2], left[-1], left[-2])
        if len(right) == 1:
            drop_column = not (ty and keep)
            right = (1, right[0]) if ty and keep else (right[0], 1)
        elif ty:
            right = (*right[:-2], right[-1], right[-2])
        if left[-1] != right[-2] and left[-1] >= 0 and right[-2] >= 0:
            raise refuse(op, block, f"X has {left[-1]} columns, but Y has {right[-2]} rows.")
        batch = broadcast_shape(left[:-2], right[:-2])
        if batch is None:
            raise refuse(op, block, "their leading dimensions cannot be broadcast together.")
        tail = (() if drop_row else (left[-2],)) + (() if drop_column else (right[-1],))
        set_output(op, block, "Out", (batch + tail) or (1,), x.dtype)

    return rule


def _matmul_or_heads_rule(op: Any, block: Any) -> None:
    heads = op.attrs.get("head_number", 1)
    if heads == 1:
        _matmul_rule("transpose_X", "transpose_Y")(op, block)
        return
    x, y = input_var(op, block, "X"), input_var(op, block, "Y")
    if x is None or y is None:
        return
    left, right = list(x.shape), list(y.shape)
    if len(left) != len(right) or len(left) not in (2, 3) or heads < 1:
        raise refuse(op, block, f"head_number {heads} needs two matrices, or batches of them.")
    if op.attrs["transpose_X"]:
        left[-2:] = left[:-3:-1]
    if op.attrs["transpose_Y"]:
        right[-2:] = right[:-3:-1]
    if left[-1] % heads or left[-1] not in (right[-2], right[-2] * heads):
        raise refuse(op, block, f"{left[-1]} columns are not {heads} parts that fit Y.")
    width = right[-1] * heads if left[-1] == right[-2] else right[-1]
    set_output(op, block, "Out", (*left[:-1], width), x.dtype)


def _by_heads(x: Tensor, y: Tensor, heads: int) -> Tensor:
    """Multiply parts of X's columns with parts of Y's rows, or of its columns if those fit."""
    parts = y.chunk(heads, -2 if x.shape[-1] == y.shape[-2] else -1)
    return torch.cat([a @ b for a, b in zip(x.chunk(heads, -1), parts, strict=True)], -1)


@op(
    "matmul",
    inputs="X Y",
    attrs={
        "Scale_x": 1.0,
        "Scale_y": 1.0,
        "Scale_out": 1.0,
        "force_fp32_output": False,
    },
    infer=_matmul_or_heads_rule,
)
def matmul(
    x: Tensor,
    y: Tensor,
    *,
    transpose_X: bool = False,
    transpose_Y: bool = False,
    alpha: float = 1.0,
    head_number: int = 1,
) -> Tensor:
    """alpha * X @ Y over the last two dimensions; a transposed vector is a column or a row.

    With several heads, parts of X's columns are multiplied with parts of Y, and the products stand
    side by side.
    """
    if transpose_X:
        x = x.mT if x.dim() > 1 else x.unsqueeze(1)
    if transpose_Y:
        y = y.mT if y.dim() > 1 else y.unsqueeze(0)
    out = torch.matmul(x, y) if head_number == 1 else _by_heads(x, y, head_number)
    if alpha != 1.0:
        out = out * alpha
    return out if out.dim() else out.reshape(1)


@op("matmul_v2", inputs="X Y", infer=_matmul_rule("trans_x", "trans_y"))
def matmul_v2(x: Tensor, y: Tensor, *, trans_x: bool = False, trans_y: bool = False) -> Tensor:
    """X @ Y over the last two dimensions."""
    if trans_x and x.dim() > 1:
        x = x.mT
    if trans_y and y.dim() > 1:
        y = y.mT
    out = torch.matmul(x, y)
    return out if out.dim() else out.reshape(1)


# -- one call each -------------------------------------------------------------------------------
op("bmm", inputs="X Y")(lambda x, y: torch.bmm(x, y))
op("mv", inputs="X Vec")(lambda x, vec: torch.mv(x, vec))
op("kron", inputs="X Y")(lambda x, y: torch.kron(x, y))
op("addmm", inputs="Input X Y")(
    lambda given, x, y, *, Alpha=1.0, Beta=1.0: torch.addmm(given, x, y, beta=Beta, alpha=Alpha)
)
op("dist", inputs="X Y")(lambda x, y, *, p=2.0: torch.linalg.vector_norm(x - y, p).reshape(1))
op("diagonal", inputs="Input")(
    lambda x, *, offset=0, axis1=0, axis2=1: torch.diagonal(x, offset, axis1, axis2)
)
op("cholesky", infer=same_as())(lambda x, *, upper=False: torch.linalg.cholesky(x, upper=upper))
op("inverse", inputs="Input", outputs="Output", infer=same_as("Input", "Output"))(
    lambda x: torch.linalg.inv(x)
)
op("matrix_power", infer=same_as())(lambda x, *, n=1: torch.linalg.matrix_power(x, n))
op("solve", inputs="X Y")(lambda x, y: torch.linalg.solve(x, y))


@op("dot", inputs="X Y")
def dot(x: Tensor, y: Tensor) -> Tensor:
    """Inner products over the last dimension, which stays with size 1."""
    if x.shape != y.shape or x.dim() not in (1, 2):
        raise ValueError(
            f"dot takes two vectors or two batches of vectors of one shape, not {tuple(x.shape)} "
            f"and {tuple(y.shape)}."
        )
    return (x * y).sum(-1, keepdim=True)


@op("cross", inputs="X Y")
def cross(x: Tensor, y: Tensor, *, dim: int = 9) -> Tensor:
    """Vector products along a dimension of size 3; 9 means the first such one."""
    if dim == 9:
        dim = next((i for i, size in enumerate(x.shape) if size == 3), -1)
    return torch.linalg.cross(x, y, dim=dim)


@op("norm", outputs="Norm Out", attrs={"is_test": False})
def norm(x: Tensor, *, axis: int = 1, epsilon: float = 1e-10) -> tuple[Tensor, Tensor]:
    """X divided by its length along an axis, and that length."""
    length = (x.square().sum(axis, keepdim=True) + epsilon).sqrt()
    return length, x / length


@op("p_norm", attrs={"epsilon": 1e-12})
def p_norm(
    x: Tensor, *, porder: float = 2.0, axis: int = -1, keepdim: bool = False, asvector: bool = False
) -> Tensor:
    """The p-norm along an axis, or of all elements."""
    out = torch.linalg.vector_norm(x, porder, None if asvector else axis, keepdim)
    return out if out.dim() else out.reshape(1)


@op("cos_sim", inputs="X Y", outputs="Out XNorm YNorm")
def cos_sim(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The cosine of the angle between rows; Y may be one row for all."""
    x, y = x.flatten(1), y.flatten(1)
    x_norm = x.square().sum(1, keepdim=True).sqrt()
    y_norm = y.square().sum(1, keepdim=True).sqrt()
    return (x * y).sum(1, keepdim=True) / x_norm / y_norm, x_norm, y_norm


@op("squared_l2_distance", inputs="X Y", outputs="sub_result Out")
def squared_l2_distance(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """X - Y, and its squared length per row."""
    difference = (x - y).flatten(1)
    return difference, difference.square().sum(1, keepdim=True)


@op("trace", inputs="Input")
def trace(
    x: Tensor,
    *,
    offset: int = 0,
    dim1: int = -2,
    dim2: int = -1,
    axis1: int | None = None,
    axis2: int | None = None,
) -> Tensor:
    """Sums of diagonals; newer programs name the dimensions axis1 and axis2."""
    first, second = (dim1 if axis1 is None else axis1), (dim2 if axis2 is None else axis2)
    out = torch.diagonal(x, offset, first, second).sum(-1)
    return out if out.dim() else out.reshape(1)


@op("determinant", inputs="Input")
def determinant(x: Tensor) -> Tensor:
    """Determinants."""
    out = torch.linalg.det(x)
    return out if out.dim() else out.reshape(1)


@op("einsum", inputs="Operands*", outputs="Out InnerCache*? XShape*?")
def einsum(operands: list[Tensor], *, equation: str = "") -> tuple[Tensor, list[None], list[None]]:
    """A sum of products in Einstein's notation; Paddle's caches of it are not filled."""
    out = torch.einsum(equation, *operands)
    unused = [None] * len(operands)
    return (out if out.dim() else out.reshape(1)), unused, unused


@op("bilinear_tensor_product", inputs="X Y Weight Bias?")
def bilinear_tensor_product(x: Tensor, y: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """x W_i y for each of the matrices W_i, plus a bias."""
    return F.bilinear(x, y, weight, None if bias is None else bias.reshape(-1))


@op("fsp", inputs="X Y")
def fsp(x: Tensor, y: Tensor) -> Tensor:
    """Products of feature maps of two layers, averaged over positions."""
    return torch.einsum("nchw,ndhw->ncd", x, y) / (x.shape[2] * x.shape[3])


@op("fc", inputs="Input W Bias?")
def fc(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    *,
    in_num_col_dims: int = 1,
    activation_type: str = "",
    padding_weights: bool = False,
) -> Tensor:
    """A matrix product with bias and activation in one op, as inference programs have it."""
    if padding_weights:  # four extra rows and columns that pad the matrix
        weight = weight[:-4, :-4]
    if activation_type not in ("", "relu"):
        raise ValueError(f"activation_type of fc must be 'relu' or '', not {activation_type!r}.")
    lead = x.shape[:in_num_col_dims]
    out = x.reshape(*lead, weight.shape[0]) @ weight
    if bias is not None:
        out = out + bias.reshape(-1)
    return out.relu() if activation_type else out


@op(
    "fusion_repeated_fc_relu",
    inputs="X W* Bias*",
    outputs="ReluOut*? Out",
    grad=None,
)
def _fusion_repeated_fc_relu(
    x: Tensor, weights: list[Tensor], biases: list[Tensor]
) -> tuple[list[Tensor], Tensor]:
    """Products with bias and ReLU one after another; returns all results but the last, and it."""
    outs = []
    for weight, bias in zip(weights, biases, strict=True):
        x = torch.relu(x @ weight + bias.reshape(-1))
        outs.append(x)
    return outs[:-1], outs[-1]


@op(
    "fusion_squared_mat_sub",
    inputs="X Y",
    outputs="SquaredX? SquaredY? SquaredXY? Out",
    attrs={"scalar": 1.0},
    grad=None,
)
def _fusion_squared_mat_sub(
    x: Tensor, y: Tensor, *, scalar: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return (X Y)^2 - X^2 Y^2, times a number, after the squares that it is made of."""
    product = (x @ y).square()
    return x.square(), y.square(), product, (product - x.square() @ y.square()) * scalar
