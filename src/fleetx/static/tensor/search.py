"""Finding: where, which, how large."""

from __future__ import annotations

from typing import Any

from fleetx.exports import export_defined
from fleetx.static import layers
from fleetx.static.building.argument_checks import check_type
from fleetx.static.building.layer_helper import LayerHelper
from fleetx.static.building.one_op import one_op
from fleetx.static.graph.dtypes import convert_dtype
from fleetx.static.graph.variable import Variable
from fleetx.static.tensor.common import as_pair, unary

index_sample = layers.index_sample


def _arg(
    op_type: str, x: Variable, axis: int | None, keepdim: bool, dtype: Any, name: Any
) -> Variable:
    if dtype is None:
        raise ValueError(f"dtype of {op_type} must be 'int32' or 'int64', not None.")
    number = int(convert_dtype(dtype))
    flat = axis is None
    attrs = {"axis": 0 if axis is None else axis, "keepdims": keepdim, "flatten": flat}
    out = unary(op_type, x, {**attrs, "dtype": number}, name=name, dtype=dtype)
    out.stop_gradient = True
    return out


def argmax(
    x: Variable,
    axis: int | None = None,
    keepdim: bool = False,
    dtype: Any = "int64",
    name: Any = None,
) -> Variable:
    """Return where the largest element is along an axis, or among all elements."""
    return _arg("arg_max", x, axis, keepdim, dtype, name)


def argmin(
    x: Variable,
    axis: int | None = None,
    keepdim: bool = False,
    dtype: Any = "int64",
    name: Any = None,
) -> Variable:
    """Return where the smallest element is along an axis, or among all elements."""
    return _arg("arg_min", x, axis, keepdim, dtype, name)


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


def argsort(
    x: Variable, axis: int = -1, descending: bool = False, name: str | None = None
) -> Variable:
    """Return the indices that put x in order along an axis."""
    return _two("argsort", x, {"X": x}, {"axis": axis, "descending": descending}, name)[1]


def sort(
    x: Variable, axis: int = -1, descending: bool = False, name: str | None = None
) -> Variable:
    """Return x in order along an axis."""
    return _two("argsort", x, {"X": x}, {"axis": axis, "descending": descending}, name)[0]


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
    """Return x where the condition holds and y elsewhere; without both, as `nonzero`."""
    if x is None and y is None:
        return nonzero(condition, as_tuple=True)
    if x is None or y is None:
        raise ValueError("where takes both x and y, or neither of them.")
    x, y = as_pair(x, y, "where")
    if x.shape != y.shape or x.shape != condition.shape:
        from fleetx.static.tensor.manipulation import broadcast_tensors

        x, y = broadcast_tensors([x, y])
        if condition.shape != x.shape:
            condition, x, y = _to_one_shape(condition, x, y)
    inputs = {"Condition": condition, "X": x, "Y": y}
    return one_op("where", inputs, dtype=x.dtype, name=name)


def _to_one_shape(condition: Variable, x: Variable, y: Variable) -> tuple[Variable, ...]:
    from fleetx.static.tensor.manipulation import broadcast_tensors

    numbers = layers.cast(condition, x.dtype)
    numbers, x, y = broadcast_tensors([numbers, x, y])
    return layers.cast(numbers, "bool"), x, y


def nonzero(x: Variable, as_tuple: bool = False) -> Any:
    """Return the places of the elements that are not zero, one row each."""
    return layers.nonzero(x, as_tuple)


def index_select(x: Variable, index: Variable, axis: int = 0, name: str | None = None) -> Variable:
    """Return the entries at the given indices along an axis."""
    return layers.index_select(x, index, axis)


def masked_select(x: Variable, mask: Variable, name: str | None = None) -> Variable:
    """Return the elements where the mask holds, as a vector."""
    inputs = {"X": x, "Mask": mask}
    return one_op("masked_select", inputs, dtype=x.dtype, name=name, slot="Y")


def searchsorted(
    sorted_sequence: Variable,
    values: Variable,
    out_int32: bool = False,
    right: bool = False,
    name: str | None = None,
) -> Variable:
    """Return where values would have to be put to keep the sequence in order."""
    return one_op(
        "searchsorted",
        {"SortedSequence": sorted_sequence, "Values": values},
        {"out_int32": out_int32, "right": right},
        dtype="int32" if out_int32 else "int64",
        name=name,
        stop_gradient=True,
    )


export_defined(globals(), "index_sample")
