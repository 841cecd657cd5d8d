"""Layers that change a tensor's type, shape or order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fleetx.exports import export_defined
from fleetx.static.building.argument_checks import as_dtype, check_dtype, check_type
from fleetx.static.building.constants import array_constant
from fleetx.static.building.layer_helper import LayerHelper
from fleetx.static.building.one_op import (
    ANY,
    NUMBERS,
    contains_variable,
    mixed_argument,
    one_op,
    op_with_x_shape,
    tensor_list,
)
from fleetx.static.building.op_layer import changed, checked, op_layer
from fleetx.static.errors import ArgumentError, ShapeError
from fleetx.static.graph.dtypes import VarType, convert_dtype
from fleetx.static.graph.variable import Variable

# What moves or converts elements takes all types of real numbers.
_CASTABLE = (*ANY, "int8", "int16", "uint8")


@checked(x=_CASTABLE, dtype=as_dtype(*_CASTABLE))
def cast(x: Variable, dtype: Any) -> Variable:
    """Return x with another element type."""
    kind = convert_dtype(dtype)
    attrs = {"in_dtype": int(x.dtype), "out_dtype": int(kind)}
    return one_op("cast", {"X": [x]}, attrs, dtype=kind)


@checked(input=Variable | np.ndarray)
def assign(input: Any, output: Variable | None = None) -> Variable:
    """Return a copy of a Variable, or of an array stored in the program, in `output` if given."""
    if isinstance(input, np.ndarray):
        check_dtype(input.dtype, "input", ("bool", "float32", "int32", "int64"), "assign")
        return array_constant(input, output)
    check_dtype(input.dtype, "input", _CASTABLE, "assign")
    if output is not None:
        check_type(output, "output", Variable, "assign")
    helper = LayerHelper("assign")
    if output is None:
        output = helper.create_variable_for_type_inference(dtype=input.dtype)
    helper.append_op(type="assign", inputs={"X": [input]}, outputs={"Out": [output]})
    return output


# -- shape ---------------------------------------------------------------------------------------
def _check_new_shape(x: Variable, shape: Sequence[Any]) -> None:
    if len(shape) == 0:
        raise ArgumentError("shape of reshape must not be empty.")
    unknown = [i for i, d in enumerate(shape) if not isinstance(d, Variable) and d == -1]
    if len(unknown) > 1:
        raise ArgumentError(f"only one dimension in shape of reshape may be -1, not {list(shape)}.")
    for i, d in enumerate(shape):
        if isinstance(d, Variable):
            continue
        if d == 0 and i >= len(x.shape):
            raise ArgumentError(f"shape[{i}] of reshape is 0, but x has no dimension {i} to copy.")
        if d < -1:
            raise ArgumentError(f"shape[{i}] of reshape must not be {d}; only -1 means unknown.")


@checked(x=_CASTABLE, shape=list | tuple | Variable, actual_shape=Variable | None)
def reshape(
    x: Variable,
    shape: Any,
    actual_shape: Variable | None = None,
    act: Any = None,
    inplace: bool = False,
    name: str | None = None,
) -> Variable:
    """Reshape x: 0 copies a dimension, -1 is inferred.

    Variables in the shape, or as the shape, are read when the program runs.
    """
    helper = LayerHelper("reshape2", act=act, name=name)
    inputs: dict[str, Any] = {"X": x}
    attrs: dict[str, Any] = {}
    if not isinstance(shape, Variable):
        _check_new_shape(x, shape)
    mixed_argument(
        helper, shape, inputs=inputs, attrs=attrs, attr="shape", whole="Shape", parts="ShapeTensor"
    )
    if actual_shape is not None and not isinstance(shape, Variable) and len(inputs) == 1:
        actual_shape.stop_gradient = True
        inputs["Shape"] = actual_shape
    out = x if inplace else helper.create_variable_for_type_inference(dtype=x.dtype)
    x_shape = helper.create_variable_for_type_inference(dtype=x.dtype)
    helper.append_op("reshape2", inputs, {"Out": out, "XShape": x_shape}, attrs)
    return helper.append_activation(out)


@op_layer(
    "x",
    op="transpose2",
    output="Out XShape",
    attrs={"axis": "perm"},
    x=_CASTABLE,
    perm=list | tuple,
)
def transpose(x: Variable, perm: Sequence[int], name: str | None = None) -> Variable:
    """Permute the dimensions of x."""
    if len(perm) != len(x.shape):
        raise ValueError(f"perm of transpose, {list(perm)}, must name all dimensions of {x.shape}.")
    for i, dim in enumerate(perm):
        if dim >= len(x.shape):
            raise ValueError(f"perm[{i}] of transpose is {dim}, but x has shape {x.shape}.")
    return changed()


@op_layer("X=input", op="squeeze2", output="Out XShape", input=_CASTABLE, axes=list | tuple)
def squeeze(input: Variable, axes: Sequence[int], name: str | None = None) -> Variable:
    """Return input without dimensions of size 1, those in `axes` or all."""


def unsqueeze(input: Variable, axes: Any, name: str | None = None) -> Variable:
    """Return input with new dimensions of size 1."""
    check_type(axes, "axes", (int, list, tuple, Variable), "unsqueeze")
    helper = LayerHelper("unsqueeze2", name=name)
    inputs: dict[str, Any] = {"X": input}
    attrs: dict[str, Any] = {}
    if isinstance(axes, int):
        axes = [axes]
    if isinstance(axes, Variable):
        axes.stop_gradient = True
        inputs["AxesTensor"] = axes
    elif contains_variable(axes):
        inputs["AxesTensorList"] = tensor_list(helper, axes)
    else:
        attrs["axes"] = list(axes)
    return op_with_x_shape("unsqueeze2", inputs, attrs, helper=helper, dtype=input.dtype)


@op_layer("x", op="flatten2", output="Out XShape", x=(*NUMBERS, "int8", "uint8"))
def flatten(x: Variable, axis: int = 1, name: str | None = None) -> Variable:
    """Return x as a matrix: the dimensions before `axis` are the rows."""
    if not isinstance(axis, int) or not 0 <= axis <= len(x.shape):
        raise ValueError(f"axis of flatten must be an int in [0, {len(x.shape)}], not {axis!r}.")
    return changed()


@checked(x=ANY, expand_times=list | tuple | Variable)
def expand(x: Variable, expand_times: Any, name: str | None = None) -> Variable:
    """Tile x along its dimensions."""
    if x.dtype == VarType.BOOL and x.stop_gradient:
        raise ValueError("expand takes a bool x only if its stop_gradient is False.")
    helper = LayerHelper("expand", name=name)
    inputs: dict[str, Any] = {"X": [x]}
    attrs: dict[str, Any] = {}
    if not isinstance(expand_times, Variable):
        for times in expand_times:
            if not isinstance(times, Variable) and times <= 0:
                raise ArgumentError(f"expand_times of expand must be positive, not {times}.")
    slots = {"whole": "ExpandTimes", "parts": "expand_times_tensor"}
    mixed_argument(helper, expand_times, inputs=inputs, attrs=attrs, attr="expand_times", **slots)
    return helper.output_of("expand", inputs, attrs, dtype=x.dtype)


@op_layer("x target_tensor=target_tensor", x=ANY, target_tensor=ANY)
def expand_as(x: Variable, target_tensor: Variable, name: str | None = None) -> Variable:
    """Tile x to the shape of another tensor."""


@op_layer("input", element_type="int32", input=Variable)
def shape(input: Variable) -> Variable:
    """Return the shape as a tensor."""


def rank(input: Variable) -> Variable:
    """Return the number of dimensions as a tensor."""
    return assign(np.array(len(input.shape), "int32"))


@op_layer("input", element_type="int64", input=Variable)
def size(input: Variable) -> Variable:
    """Return the number of elements as a tensor."""


# -- order ---------------------------------------------------------------------------------------
@op_layer("x", x=(*ANY, "uint8"), axis=int | tuple | list)
def reverse(x: Variable, axis: Any) -> Variable:
    """Reverse the order of the elements along dimensions."""
    axes = [axis] if isinstance(axis, int) else list(axis)
    rank = len(x.shape)
    if not axes or not all(-rank <= a < rank for a in axes):
        raise ShapeError(
            f"axis of reverse is {axis}, but must name dimensions of x, which has {rank}: "
            f"{-rank} to {rank - 1}."
        )
    return changed(axis=axes)


@checked(input=ANY, dims=list | tuple)
def flip(input: Variable, dims: Sequence[int], name: str | None = None) -> Variable:
    """Reverse the order of the elements along dimensions."""
    if len(dims) == 0:
        raise ArgumentError("dims of flip must not be empty.")
    helper = LayerHelper("flip", name=name)
    out = helper.create_named(name, input.dtype)
    attrs = {"dims": list(dims)}
    helper.append_op(type="flip", inputs={"X": input}, outputs={"Out": out}, attrs=attrs)
    return out


def roll(input: Variable, shifts: Any, dims: Any = None) -> Variable:
    """Roll the elements along dimensions, or as one flattened tensor."""
    helper = LayerHelper("roll")
    before = input.shape
    shifts = [shifts] if isinstance(shifts, int) else shifts
    dims = [dims] if isinstance(dims, int) else dims
    check_type(shifts, "shifts", (list, tuple), "roll")
    if dims:
        check_type(dims, "dims", (list, tuple), "roll")
    out = helper.create_variable_for_type_inference(input.dtype)
    if dims is None:
        input, dims = reshape(input, shape=[-1, 1]), [0]
    attrs = {"dims": list(dims), "shifts": list(shifts)}
    helper.append_op(type="roll", inputs={"X": input}, outputs={"Out": out}, attrs=attrs)
    return reshape(out, shape=list(before), inplace=True)


export_defined(globals())
