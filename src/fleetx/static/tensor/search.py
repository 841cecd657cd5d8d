"""Searching and sorting."""

from __future__ import annotations

from typing import Any

from fleetx.exports import export_defined
from fleetx.static import layers
from fleetx.static.building.adapted import adapted
from fleetx.static.building.argument_checks import check_type
from fleetx.static.building.layer_helper import LayerHelper
from fleetx.static.building.one_op import one_op
from fleetx.static.building.op_layer import changed, op_layer
from fleetx.static.building.spatial_variants import with_first
from fleetx.static.graph.dtypes import convert_dtype
from fleetx.static.graph.variable import Variable
from fleetx.static.tensor.common import as_pair, unary
from fleetx.static.tensor.manipulation import broadcast_tensors

index_sample = layers.index_sample
nonzero = adapted(layers.nonzero, "x -> input, as_tuple")
index_select = adapted(layers.index_select, "x -> input, index, axis -> dim, name")


def _arg(
    op_type: str,
    x: Variable,
    axis: int | None = None,
    keepdim: bool = False,
    dtype: Any = "int64",
    name: Any = None,
) -> Variable:
    if dtype is None:
        raise ValueError(f"dtype of {op_type} must be 'int32' or 'int64', not None.")
    number = int(convert_dtype(dtype))
    flat = axis is None
    attrs = {"axis": 0 if axis is None else axis, "keepdims": keepdim, "flatten": flat}
    out = unary(op_type, x, {**attrs, "dtype": number}, name=name, dtype=dtype)
    out.stop_gradient = True
    return out


_WHERE = "Return the index of the {} element along an axis, or in the flattened tensor."
argmax = with_first(_arg, "argmax", "arg_max", doc=_WHERE.format("largest"))
argmin = with_first(_arg, "argmin", "arg_min", doc=_WHERE.format("smallest"))


def _two(
    op_type: str, x: Variable, inputs: Any, attrs: Any, name: Any
) -> tuple[Variable, Variable]:
    """Append an op that returns values and their indices."""
    check_type(x, "x", Variable, op_type)
    helper = LayerHelper(op_type, name=name)
    values, indices = helper.outputs_of(
        op_type, inputs, attrs, Out=x.dtype, Indices="int64", no_grad="Indices"
    )
    return values, indices


def _sorted(
    output: int, x: Variable, axis: int = -1, descending: bool = False, name: str | None = None
) -> Variable:
    return _two("argsort", x, {"X": x}, {"axis": axis, "descending": descending}, name)[output]


sort = with_first(_sorted, "sort", 0, doc="Return x sorted along an axis.")
argsort = with_first(_sorted, "argsort", 1, doc="Return the indices that sort x along an axis.")


def topk(
    x: Variable,
    k: Any,
    axis: int | None = None,
    largest: bool = True,
    sorted: bool = True,
    name: str | None = None,
) -> tuple[Variable, Variable]:
    """Return the k largest (or smallest) elements along an axis, and their indices."""
    inputs: dict[str, Any] = {"X": x}
    attrs: dict[str, Any] = {"axis": -1 if axis is None else axis}
    attrs.update(largest=largest, sorted=sorted)
    if isinstance(k, Variable):
        inputs["K"] = k
    else:
        attrs["k"] = k
    return _two("top_k_v2", x, inputs, attrs, name)


def kthvalue(
    x: Variable, k: int, axis: int | None = None, keepdim: bool = False, name: str | None = None
) -> tuple[Variable, Variable]:
    """Return the k-th smallest element along an axis, and its index."""
    attrs = {"k": k, "axis": -1 if axis is None else axis, "keepdim": keepdim}
    return _two("kthvalue", x, {"X": x}, attrs, name)


def where(condition: Variable, x: Any = None, y: Any = None, name: str | None = None) -> Any:
    """Return x where the condition is true and y elsewhere; without both, like `nonzero`."""
    if x is None and y is None:
        return nonzero(condition, as_tuple=True)
    if x is None or y is None:
        raise ValueError("where takes both x and y, or neither of them.")
    x, y = as_pair(x, y, "where")
    if x.shape != y.shape or x.shape != condition.shape:
        x, y = broadcast_tensors([x, y])
        if condition.shape != x.shape:
            condition, x, y = _to_one_shape(condition, x, y)
    inputs = {"Condition": condition, "X": x, "Y": y}
    return one_op("where", inputs, dtype=x.dtype, name=name)


def _to_one_shape(condition: Variable, x: Variable, y: Variable) -> tuple[Variable, ...]:
    numbers = layers.cast(condition, x.dtype)
    numbers, x, y = broadcast_tensors([numbers, x, y])
    return layers.cast(numbers, "bool"), x, y


@op_layer("x mask", output="Y")
def masked_select(x: Variable, mask: Variable, name: str | None = None) -> Variable:
    """Return the elements where the mask is true, as a vector."""


@op_layer("sorted_sequence values", element_type="kind", no_grad="Out")
def searchsorted(
    sorted_sequence: Variable,
    values: Variable,
    out_int32: bool = False,
    right: bool = False,
    name: str | None = None,
) -> Variable:
    """Return the indices at which values would be inserted to keep the sequence sorted."""
    return changed(kind="int32" if out_int32 else "int64")


export_defined(globals(), "index_sample")
