"""Layers that join and split tensors."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

from fleetx.exports import export_defined
from fleetx.static.building.argument_checks import check_type, check_variable_and_dtype
from fleetx.static.building.layer_helper import LayerHelper
from fleetx.static.building.one_op import (
    ANY,
    contains_variable,
    tensor_list,
)
from fleetx.static.building.op_layer import checked
from fleetx.static.errors import ArgumentError
from fleetx.static.graph.dtypes import VarType
from fleetx.static.graph.variable import Variable


def _only_array(values: Sequence[Variable], layer: str) -> bool:
    if values[0].type != VarType.LOD_TENSOR_ARRAY:
        return False
    if len(values) != 1:
        raise ArgumentError(f"{layer} takes one array of tensors, not {len(values)}.")
    return True


def _array_to_tensor(helper: LayerHelper, array: Variable, axis: Any, use_stack: bool) -> Variable:
    attrs = {"axis": axis, "use_stack": use_stack}
    out, _ = helper.outputs_of(
        "tensor_array_to_tensor", {"X": array}, attrs, Out=array.dtype, OutIndex="int32"
    )
    return out


def concat(input: Any, axis: Any = 0, name: str | None = None) -> Variable:
    """Concatenate tensors along an axis."""
    if not isinstance(input, list | tuple):
        warnings.warn(f"concat takes a list, not {type(input).__name__}.", stacklevel=2)
        input = [input]
    for i, var in enumerate(input):
        check_variable_and_dtype(var, f"input[{i}]", ANY, "concat")
    check_type(axis, "axis", (int, Variable), "concat")
    helper = LayerHelper("concat", input=input, name=name)
    dtype = helper.input_dtype()
    if _only_array(input, "concat"):
        return _array_to_tensor(helper, input[0], axis, use_stack=False)
    inputs: dict[str, Any] = {"X": list(input)}
    attrs = {}
    if isinstance(axis, Variable):
        axis.stop_gradient = True
        inputs["AxisTensor"] = axis
    else:
        attrs["axis"] = axis
    return helper.output_of("concat", inputs, attrs, dtype=dtype)


def stack(x: Any, axis: int | None = 0) -> Variable:
    """Stack tensors of one shape along a new axis."""
    axis = 0 if axis is None else axis
    values = list(x) if isinstance(x, list | tuple) else [x]
    for var in values:
        check_type(var, "x", Variable, "stack")
    helper = LayerHelper("stack")
    if _only_array(values, "stack"):
        return _array_to_tensor(helper, values[0], axis, use_stack=True)
    return helper.output_of("stack", {"X": values}, {"axis": axis}, dtype=values[0].dtype, slot="Y")


def _slices(op: str, slot: str, x: Variable, axis: int, num: int | None = None) -> list[Variable]:
    helper = LayerHelper(op)
    count = num
    if count is None:
        if axis is None or x.shape[axis] <= 0:
            raise ValueError(f"{op} needs num, because dimension {axis} of x is unknown.")
        count = x.shape[axis]
    outs = [helper.create_variable_for_type_inference(x.dtype) for _ in range(count)]
    attrs = {"axis": axis, "num": count} if op == "unstack" else {"axis": axis}
    helper.append_op(type=op, inputs={"X": [x]}, outputs={slot: outs}, attrs=attrs)
    return outs


def unstack(x: Variable, axis: int = 0, num: int | None = None) -> list[Variable]:
    """Return the slices along an axis."""
    return _slices("unstack", "Y", x, axis, num)


@checked(axis=int)
def unbind(input: Variable, axis: int = 0) -> list[Variable]:
    """Return the slices along an axis."""
    return _slices("unbind", "Out", input, axis)


@checked(input=Variable, num_or_sections=int | list | tuple, dim=int | Variable)
def split(
    input: Variable, num_or_sections: Any, dim: Any = -1, name: str | None = None
) -> list[Variable]:
    """Split along a dimension into a number of equal parts, or into parts of given sizes."""
    helper = LayerHelper("split", name=name)
    inputs: dict[str, Any] = {"X": input}
    equal = isinstance(num_or_sections, int)
    attrs: dict[str, Any] = {"num": num_or_sections if equal else 0}
    size = -1
    if isinstance(dim, Variable):
        dim.stop_gradient = True
        inputs["AxisTensor"] = dim
    else:
        attrs["axis"] = dim + len(input.shape) if dim < 0 else dim
        size = input.shape[attrs["axis"]]
    if equal:
        count = num_or_sections
        if count < 2:
            raise ArgumentError(f"num_or_sections of split must be more than 1, not {count}.")
        if size > 0 and size % count:
            raise ArgumentError(f"split cannot cut a dimension of {size} into {count} equal parts.")
    else:
        count = len(num_or_sections)
        if 0 < size < count:
            raise ArgumentError(f"split cannot cut a dimension of {size} into {count} parts.")
        attrs["sections"] = [-1 if isinstance(s, Variable) else s for s in num_or_sections]
        if sum(s == -1 for s in num_or_sections if not isinstance(s, Variable)) > 1:
            raise ArgumentError("only one of the sections of split may be -1.")
        if contains_variable(num_or_sections):
            inputs["SectionsTensorList"] = tensor_list(helper, num_or_sections)
    outs = [helper.create_variable_for_type_inference(input.dtype) for _ in range(count)]
    helper.append_op(type="split", inputs=inputs, outputs={"Out": outs}, attrs=attrs)
    return outs


export_defined(globals())
