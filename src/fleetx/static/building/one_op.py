"""What layers of one op share: the op, its output, lists that mix numbers and Variables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fleetx.static.building.argument_checks import check_dtype
from fleetx.static.building.layer_helper import LayerHelper
from fleetx.static.graph.dtypes import VarType
from fleetx.static.graph.variable import Variable

# Element types that layers accept.
WIDE = ("float32", "float64")
HALF_TOO = ("float16", *WIDE)
FLOATS = ("float16", "bfloat16", "float32", "float64")
INTS = ("int32", "int64")
WIDE_NUMBERS = (*WIDE, *INTS)
NUMBERS = (*FLOATS, *INTS)
ANY = (*NUMBERS, "bool")


def one_op(
    type: str,
    inputs: dict[str, Any],
    attrs: dict[str, Any] | None = None,
    *,
    dtype: Any,
    layer: str | None = None,
    name: str | None = None,
    out: Variable | None = None,
    slot: str = "Out",
    act: Any = None,
    stop_gradient: bool = False,
) -> Variable:
    """Append one op with one output to the main program and return the output."""
    helper = LayerHelper(layer or type, name=name, act=act)
    if out is None:
        out = helper.create_variable_for_type_inference(dtype)
    helper.append_op(type=type, inputs=inputs, outputs={slot: [out]}, attrs=attrs or {})
    if stop_gradient:
        out.stop_gradient = True
    return helper.append_activation(out)


def op_with_x_shape(
    type: str, inputs: dict[str, Any], attrs: dict[str, Any], *, helper: LayerHelper, dtype: Any
) -> Variable:
    """Append an op whose second output, XShape, keeps the input's shape in the program."""
    out, _ = helper.outputs_of(type, inputs, attrs, Out=dtype, XShape=dtype)
    return out


def contains_variable(values: Any) -> bool:
    """Return whether a list or tuple contains a Variable."""
    return isinstance(values, list | tuple) and any(isinstance(v, Variable) for v in values)


def attr_list(values: Sequence[Any], unknown: int = -1) -> list[int]:
    """Return the list for an attribute, with `unknown` in place of Variables."""
    return [unknown if isinstance(v, Variable) else int(v) for v in values]


def tensor_list(helper: LayerHelper, values: Sequence[Any], dtype: str = "int32") -> list[Variable]:
    """Return the list as Variables; numbers become constants."""
    from fleetx.static.layers.creation import fill_constant

    found = []
    for value in values:
        if isinstance(value, Variable):
            value.stop_gradient = True
            found.append(value)
        else:
            out = helper.create_variable_for_type_inference(dtype)
            found.append(fill_constant([1], dtype, int(value), force_cpu=True, out=out))
    return found


def mixed_argument(
    helper: LayerHelper,
    value: Any,
    *,
    inputs: dict[str, Any],
    attrs: dict[str, Any],
    attr: str,
    whole: str,
    parts: str,
    dtype: str = "int32",
) -> None:
    """Put a Variable in slot `whole`, a list in `attr` and, if it holds Variables, in `parts`."""
    if isinstance(value, Variable):
        value.stop_gradient = True
        inputs[whole] = value
        return
    attrs[attr] = attr_list(value)
    if contains_variable(value):
        inputs[parts] = tensor_list(helper, value, dtype)


def shape_argument(shape: Any, inputs: dict[str, Any], attrs: dict[str, Any], layer: str) -> None:
    """Set ShapeTensor, ShapeTensorList or attribute `shape`; shapes in tensors are made int32."""
    from fleetx.static.layers.creation import fill_constant
    from fleetx.static.layers.tensor import cast

    def as_int32(var: Variable, label: str) -> Variable:
        var.stop_gradient = True
        check_dtype(var.dtype, label, INTS, layer)
        return cast(var, "int32") if var.dtype == VarType.INT64 else var

    if isinstance(shape, Variable):
        inputs["ShapeTensor"] = as_int32(shape, "shape")
        return
    attrs["shape"] = attr_list(shape)
    if contains_variable(shape):
        inputs["ShapeTensorList"] = [
            as_int32(d, f"shape[{i}]")
            if isinstance(d, Variable)
            else fill_constant([1], "int32", d, force_cpu=True)
            for i, d in enumerate(shape)
        ]
