"""Constants of a program: filled with one value, or the elements of an array.

Layers of Paddle 1.x reject some element types that those of 2.x accept; both use these functions.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fleetx.static.building.argument_checks import (
    check_dtype,
    check_type,
    check_variable_and_dtype,
)
from fleetx.static.building.layer_helper import LayerHelper
from fleetx.static.building.one_op import ANY, INTS, shape_argument
from fleetx.static.errors import ArgumentError, ShapeError
from fleetx.static.graph.dtypes import convert_dtype, dtype_name
from fleetx.static.graph.variable import Variable
from fleetx.static.initializer import value_attrs


def str_value(value: Any, dtype: Any) -> str:
    """Return a number as text for an op's attribute, exact for large integers."""
    return str(int(value)) if dtype_name(dtype) in INTS else str(float(value))


def constant(
    shape: Any,
    dtype: Any,
    value: Any,
    force_cpu: bool = False,
    out: Variable | None = None,
    name: str | None = None,
) -> Variable:
    """Return a tensor filled with one value; shape and value may be Variables."""
    inputs: dict[str, Any] = {}
    attrs: dict[str, Any] = {"force_cpu": force_cpu}
    if isinstance(value, Variable):
        inputs["ValueTensor"] = value
    else:
        attrs["value"] = float(value)
        attrs["str_value"] = str_value(value, dtype)
    check_dtype(dtype, "dtype", (*ANY, "uint8", "int8", "int16"), "fill_constant")
    check_type(shape, "shape", (Variable, list, tuple), "fill_constant")
    if isinstance(shape, Variable):
        check_variable_and_dtype(shape, "shape", INTS, "fill_constant")
    elif len(shape) == 0:
        raise ArgumentError("shape of fill_constant must not be empty.")
    elif any(not isinstance(size, Variable) and size < 0 for size in shape):
        raise ShapeError(f"shape of fill_constant is {list(shape)}, but no size may be negative.")
    if out is not None:
        check_variable_and_dtype(out, "out", (dtype_name(dtype),), "fill_constant")
    helper = LayerHelper("fill_constant", name=name)
    shape_argument(shape, inputs, attrs, "fill_constant")
    if out is None:
        out = helper.create_variable_for_type_inference(dtype=dtype)
    attrs["dtype"] = int(out.dtype)
    helper.append_op("fill_constant", inputs, {"Out": [out]}, attrs, stop_gradient=True)
    out.stop_gradient = True
    return out


def array_constant(array: np.ndarray[Any, Any], output: Variable | None = None) -> Variable:
    """Return a Variable with the elements of an array, which are stored in the program."""
    check_dtype(array.dtype, "input", ("bool", "float32", "float64", "int32", "int64"), "assign")
    if array.size > 1024 * 1024:
        raise ValueError(
            f"assign stores its array in the program, and {array.size} elements are too many; "
            "save them to a file and load that."
        )
    helper = LayerHelper("assign")
    kind = convert_dtype(array.dtype)
    if output is None:
        output = helper.create_variable_for_type_inference(dtype=kind)
    attrs = {"dtype": int(kind), "shape": list(array.shape), **value_attrs(array, kind)}
    helper.append_op(type="assign_value", outputs={"Out": [output]}, attrs=attrs)
    return output
