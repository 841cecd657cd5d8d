"""Helpers of the tensor functions: element types, axes, one op with one input."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fleetx.static.building.argument_checks import check_type
from fleetx.static.building.constants import constant
from fleetx.static.building.one_op import one_op
from fleetx.static.graph.dtypes import VarType, convert_dtype, dtype_name, is_floating
from fleetx.static.graph.variable import Variable
from fleetx.static.layers.tensor import cast

_default_dtype = VarType.FP32


def get_default_dtype() -> str:
    """Return the name of the default element type."""
    return dtype_name(_default_dtype)


def set_default_dtype(d: Any) -> None:
    """Set the default element type, a floating-point one."""
    global _default_dtype
    dtype = convert_dtype(d)
    if not is_floating(dtype):
        raise TypeError(f"set_default_dtype takes float16, float32 or float64, not {d!r}.")
    _default_dtype = dtype


def or_default(dtype: Any) -> VarType:
    """Return the given element type, or the default one for None."""
    return _default_dtype if dtype is None else convert_dtype(dtype)


def unary(
    op_type: str,
    x: Variable,
    attrs: dict[str, Any] | None = None,
    *,
    name: str | None = None,
    layer: str | None = None,
    dtype: Any = None,
    slot: str = "X",
    out_slot: str = "Out",
) -> Variable:
    """Append an op with one input; the output has the input's type unless `dtype` is given."""
    check_type(x, "x", Variable, layer or op_type)
    return one_op(
        op_type,
        {slot: x},
        attrs,
        dtype=x.dtype if dtype is None else dtype,
        name=name,
        layer=layer,
        slot=out_slot,
    )


def binary(
    op_type: str,
    x: Any,
    y: Any,
    attrs: dict[str, Any] | None = None,
    *,
    name: str | None = None,
    layer: str | None = None,
    dtype: Any = None,
) -> Variable:
    """Append an op with inputs X and Y; one of them may be a number."""
    x, y = as_pair(x, y, layer or op_type)
    return one_op(
        op_type,
        {"X": x, "Y": y},
        attrs,
        dtype=x.dtype if dtype is None else dtype,
        name=name,
        layer=layer,
    )


def as_pair(x: Any, y: Any, layer: str) -> tuple[Variable, Variable]:
    """Return both as Variables; a number becomes a constant of the other's type."""
    if not isinstance(x, Variable) and not isinstance(y, Variable):
        raise TypeError(f"one of the inputs of {layer} must be a Variable, not {x!r} and {y!r}.")
    if not isinstance(x, Variable):
        return constant([1], y.dtype, x), y
    if not isinstance(y, Variable):
        return x, constant([1], x.dtype, y)
    return x, y


def reduction(
    op_type: str,
    x: Variable,
    axis: Any,
    keepdim: bool,
    *,
    name: str | None = None,
    layer: str,
    dtype: Any = None,
) -> Variable:
    """Append a reduction over one axis, several, or all (None), after a cast to `dtype`."""
    check_type(x, "x", Variable, layer)
    if dtype is not None and convert_dtype(dtype) != x.dtype:
        x = cast(x, dtype)
    axes = axis_list(axis)
    everything = axes is None or len(axes) in (0, len(x.shape))
    attrs = {"dim": axes or [0], "keep_dim": keepdim, "reduce_all": everything}
    return unary(op_type, x, attrs, name=name, layer=layer)


def axis_list(axis: int | Sequence[int] | None) -> list[int] | None:
    """Return an axis or several as a list, None as None."""
    if axis is None:
        return None
    return [int(axis)] if isinstance(axis, int) else [int(a) for a in axis]
