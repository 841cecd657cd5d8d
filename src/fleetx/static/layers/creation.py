"""Layers that create tensors: constants, ranges, matrices, parameters, global variables."""

from __future__ import annotations

from collections.abc import Sequence
from types import NoneType
from typing import Any

import numpy as np

from fleetx.exports import export_defined
from fleetx.static.building.argument_checks import (
    as_dtype,
    check_dtype,
    check_two_axes,
    check_type,
    check_variable_and_dtype,
    optional,
)
from fleetx.static.building.constants import array_constant, constant, str_value
from fleetx.static.building.layer_helper import LayerHelper
from fleetx.static.building.one_op import ANY, FLOATS, INTS, NUMBERS, one_op
from fleetx.static.building.op_layer import changed, checked, op_layer
from fleetx.static.building.param_attr import ParamAttr
from fleetx.static.building.spatial_variants import of_op
from fleetx.static.errors import ArgumentError
from fleetx.static.graph.default_programs import device_guard
from fleetx.static.graph.dtypes import convert_dtype, dtype_name
from fleetx.static.graph.variable import Variable
from fleetx.static.initializer import Constant, Initializer
from fleetx.static.layers.joining import stack
from fleetx.static.layers.tensor import cast

_SHAPES = (list, tuple, np.ndarray)
_CREATABLE = as_dtype("bool", *FLOATS, "int8", "int16", "int32", "int64", "uint8")


def _check_shape(shape: Any, name: str, layer: str) -> None:
    check_type(shape, name, _SHAPES, layer)
    for item in shape:
        check_type(item, f"item of {name}", (int, np.integer), layer)


@checked(dtype=_CREATABLE)
def create_tensor(dtype: Any, name: str | None = None, persistable: bool = False) -> Variable:
    """Create a variable for later ops to write."""
    helper = LayerHelper("create_tensor", name=name)
    return helper.create_variable(name=helper.name, dtype=dtype, persistable=persistable)


@checked(
    shape=_check_shape,
    dtype=_CREATABLE,
    attr=NoneType | ParamAttr,
    default_initializer=NoneType | Initializer,
)
def create_parameter(
    shape: Sequence[int],
    dtype: Any,
    name: str | None = None,
    attr: Any = None,
    is_bias: bool = False,
    default_initializer: Any = None,
) -> Any:
    """Create a parameter outside of any layer."""
    helper = LayerHelper("create_parameter", name=name)
    attr = ParamAttr(name=name) if attr is None else attr
    return helper.create_parameter(attr, shape, convert_dtype(dtype), is_bias, default_initializer)


@checked(shape=_check_shape)
def create_global_var(
    shape: Sequence[int],
    value: float,
    dtype: Any,
    persistable: bool = False,
    force_cpu: bool = False,
    name: str | None = None,
) -> Variable:
    """Create a variable in block 0 that the startup program sets to `value`."""
    kind = dtype_name(convert_dtype(dtype))
    if kind.startswith("complex"):  # Paddle raises ValueError, where other layers raise TypeError
        raise ValueError(f"create_global_var makes real variables, but dtype is {kind!r}.")
    helper = LayerHelper("global_var", name=name)
    var = helper.create_global_variable(
        persistable, dtype=dtype, shape=shape, name=name, stop_gradient=True
    )
    helper.set_variable_initializer(var, Constant(float(value), force_cpu=force_cpu))
    return var


def fill_constant(
    shape: Any,
    dtype: Any,
    value: Any,
    force_cpu: bool = False,
    out: Variable | None = None,
    name: str | None = None,
) -> Variable:
    """Return a tensor filled with one value; shape and value may be Variables."""
    check_dtype(dtype, "dtype", ANY, "fill_constant")
    return constant(shape, dtype, value, force_cpu, out, name)


@op_layer("input", element_type="dtype", attrs={"dtype": "dtype"}, no_grad="Out", input=Variable)
def fill_constant_batch_size_like(
    input: Variable,
    shape: Sequence[int],
    dtype: Any,
    value: float,
    input_dim_idx: int = 0,
    output_dim_idx: int = 0,
    force_cpu: bool = False,
) -> Variable:
    """Return a tensor filled with one value, with the batch size of `input`."""
    return changed(shape=[int(d) for d in shape], str_value=str_value(value, dtype))


def ones(shape: Sequence[Any], dtype: Any, force_cpu: bool = False) -> Variable:
    """Return ones."""
    check_type(shape, "shape", (list, tuple), "ones")
    check_dtype(dtype, "create data type", ANY, "ones")
    if any(not isinstance(d, Variable) and d <= 0 for d in shape):
        raise ArgumentError(f"shape of ones must be positive, not {list(shape)}.")
    return fill_constant(shape, dtype, 1.0, force_cpu)


def zeros(shape: Sequence[Any], dtype: Any, force_cpu: bool = False) -> Variable:
    """Return zeros."""
    check_type(shape, "shape", (list, tuple), "zeros")
    check_dtype(dtype, "create data type", ANY, "zeros")
    return fill_constant(shape, dtype, 0.0, force_cpu)


@checked(x=ANY, out=optional(ANY))
def zeros_like(x: Variable, out: Variable | None = None) -> Variable:
    """Return zeros of the shape of x."""
    return one_op(
        "fill_zeros_like", {"X": x}, dtype=x.dtype, layer="zeros_like", out=out, stop_gradient=True
    )


@checked(x=ANY, out=optional(ANY))
def ones_like(x: Variable, out: Variable | None = None) -> Variable:
    """Return ones of the shape of x."""
    attrs = {"value": 1.0}
    return one_op("fill_any_like", {"X": x}, attrs, dtype=x.dtype, layer="ones_like", out=out)


def full_like(
    input: Variable,
    fill_value: float,
    out: Variable | None = None,
    dtype: Any = None,
    device: str | None = None,
    stop_gradient: bool = True,
    name: str | None = None,
) -> Variable:
    """Return a tensor of the shape of `input`, filled with one value."""
    if dtype is not None:
        check_dtype(dtype, "dtype", ANY, "full_like")
    kind = input.dtype if dtype is None else convert_dtype(dtype)
    attrs = {"value": float(fill_value), "dtype": int(kind)}
    with device_guard(device):
        result = one_op(
            "fill_any_like", {"X": input}, attrs, dtype=kind, layer="full_like", name=name, out=out
        )
    result.stop_gradient = stop_gradient
    return result


def full(
    shape: Any,
    fill_value: Any,
    out: Variable | None = None,
    dtype: Any = None,
    device: str | None = None,
    stop_gradient: bool = True,
    name: str | None = None,
) -> Variable:
    """Return a tensor filled with one value, float32 by default."""
    helper = LayerHelper("full", name=name)
    dtype = "float32" if dtype is None else dtype
    check_dtype(dtype, "create data type", ANY, "full")
    check_type(shape, "shape", (Variable, list, tuple), "full")
    if out is None:
        out = helper.create_variable_for_type_inference(dtype=dtype)
    with device_guard(device):
        out = fill_constant(shape, dtype, fill_value, out=out)
    out.stop_gradient = stop_gradient
    return out


def _as_tensor(value: Any, label: str, dtype: Any, layer: str) -> Variable:
    check_type(value, label, (float, int, np.number, Variable), layer)
    if not isinstance(value, Variable):
        return fill_constant([1], dtype, value)
    return value if value.dtype == convert_dtype(dtype) else cast(value, dtype)


def range(start: Any, end: Any, step: Any, dtype: Any, name: str | None = None) -> Variable:
    """Return start, start + step, ... below end."""
    helper = LayerHelper("range", name=name)
    check_dtype(dtype, "create data type", (*FLOATS, *INTS), "range")
    first, last, by = (
        _as_tensor(v, label, dtype, "range")
        for v, label in ((start, "start"), (end, "end"), (step, "step"))
    )
    out = helper.output_of("range", {"Start": first, "End": last, "Step": by}, dtype=first.dtype)
    out.stop_gradient = True
    return out


def arange(
    start: Any, end: Any = None, step: Any = 1, dtype: Any = None, name: str | None = None
) -> Variable:
    """Return the numbers from start (0 where only one bound is given) below end."""
    if end is None:
        start, end = 0, start
    return range(start, end, step, "float32" if dtype is None else dtype, name)


def linspace(start: Any, stop: Any, num: Any, dtype: Any = "float32") -> Variable:
    """Return `num` evenly spaced values from start to stop."""
    helper = LayerHelper("linspace")
    for value, label in ((start, "start"), (stop, "stop"), (num, "num")):
        check_type(value, label, (Variable, float, int), "linspace")
    for value, label in ((start, "start"), (stop, "stop")):
        if isinstance(value, Variable):
            check_variable_and_dtype(value, label, FLOATS, "linspace")
    if isinstance(num, Variable):
        check_variable_and_dtype(num, "num", ("int32",), "linspace")
    first = start if isinstance(start, Variable) else fill_constant([1], dtype, start)
    last = stop if isinstance(stop, Variable) else fill_constant([1], dtype, stop)
    count = num if isinstance(num, Variable) else fill_constant([1], "int32", num)
    return helper.output_of(
        "linspace", {"Start": first, "Stop": last, "Num": count}, dtype=first.dtype
    )


def eye(
    num_rows: int, num_columns: int | None = None, batch_shape: Any = None, dtype: Any = "float32"
) -> Variable:
    """Return the identity matrix, repeated over `batch_shape`."""
    for label, value in (("num_rows", num_rows), ("num_columns", num_columns)):
        given = value is not None or label == "num_rows"
        if given and (not isinstance(value, int) or value < 0):
            raise TypeError(f"{label} of eye must be a non-negative int, not {value!r}.")
    columns = num_rows if num_columns is None else num_columns
    attrs = {"num_rows": num_rows, "num_columns": columns, "dtype": int(convert_dtype(dtype))}
    out = one_op("eye", {}, attrs, dtype=dtype, stop_gradient=True)
    if batch_shape is not None:
        if not isinstance(batch_shape, list):
            raise TypeError(f"batch_shape of eye must be a list, not {batch_shape!r}.")
        for count in reversed(batch_shape):
            if count <= 0:
                raise TypeError(f"batch_shape of eye must hold positive ints, not {batch_shape}.")
            out = stack([out] * count, axis=0)
    return out


def diag(diagonal: Any) -> Variable:
    """Return the matrix with this diagonal."""
    check_type(diagonal, "diagonal", (Variable, np.ndarray), "diag")
    check_dtype(diagonal.dtype, "diagonal", NUMBERS, "diag")
    helper = LayerHelper("diag")
    if not isinstance(diagonal, Variable):
        diagonal = array_constant(diagonal)
    out = helper.output_of("diag", {"Diagonal": [diagonal]}, dtype=diagonal.dtype)
    out.stop_gradient = True
    return out


def diag_embed(input: Any, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Variable:
    """Return matrices whose diagonals are the last dimension of `input`."""
    check_type(input, "input", (Variable, np.ndarray), "diag_embed")
    if not isinstance(input, Variable):
        input = array_constant(input)
    check_dtype(input.dtype, "Input", NUMBERS, "diag_embed")
    check_two_axes("diag_embed", len(input.shape) + 1, dim1=dim1, dim2=dim2)
    attrs = {"offset": offset, "dim1": dim1, "dim2": dim2}
    return one_op("diag_embed", {"Input": [input]}, attrs, dtype=input.dtype, stop_gradient=True)


def _triangle(layer: str, input: Variable, diagonal: int = 0, name: str | None = None) -> Variable:
    check_variable_and_dtype(input, "x", NUMBERS, layer)
    if len(input.shape) < 2:
        raise ValueError(f"{layer} needs 2 dimensions or more, not {input.shape}.")
    if not isinstance(diagonal, int):
        raise TypeError(f"diagonal of {layer} must be an int, not {diagonal!r}.")
    helper = LayerHelper(layer, name=name)
    out = helper.create_variable(name=helper.name, dtype=input.dtype, persistable=False)
    attrs = {"diagonal": diagonal, "lower": layer == "tril"}
    return one_op("tril_triu", {"X": input}, attrs, dtype=input.dtype, name=helper.name, out=out)


tril = of_op(_triangle, "tril", "Return the lower triangle.")
triu = of_op(_triangle, "triu", "Return the upper triangle.")


def meshgrid(input: list[Variable], name: str | None = None) -> list[Variable]:
    """Return the coordinates of the grid spanned by vectors."""
    if not isinstance(input, list):
        raise TypeError(f"input of meshgrid must be a list, not {type(input).__name__}.")
    for var in input:
        check_dtype(var.dtype, "create data type", NUMBERS, "meshgrid")
    helper = LayerHelper("meshgrid", name=name)
    outs = [helper.create_variable_for_type_inference(dtype=v.dtype) for v in input]
    helper.append_op(type="meshgrid", inputs={"X": input}, outputs={"Out": outs})
    return outs


export_defined(globals())
