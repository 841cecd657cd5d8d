"""Layers for slicing, indexing, padding and cropping."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fleetx.exports import export_defined
from fleetx.static.building.argument_checks import (
    check_dtype,
    check_type,
    check_variable_and_dtype,
    one_of,
)
from fleetx.static.building.layer_helper import LayerHelper
from fleetx.static.building.one_op import (
    ANY,
    INTS,
    NUMBERS,
    WIDE,
    attr_list,
    contains_variable,
    one_op,
    tensor_list,
)
from fleetx.static.building.op_layer import changed, checked, op_layer
from fleetx.static.errors import ArgumentError
from fleetx.static.graph.variable import Variable
from fleetx.static.layers.creation import zeros


# -- slices --------------------------------------------------------------------------------------
def _slice_argument(
    helper: LayerHelper,
    value: Any,
    word: str,
    *,
    inputs: dict[str, Any],
    attrs: dict[str, Any],
    flags: list[int],
    whole_is_unknown: bool,
) -> None:
    """Put `starts`, `ends` or `strides` into slots or an attribute; mark unknown values by -1."""
    slot = word.capitalize()
    if isinstance(value, Variable):
        value.stop_gradient = True
        inputs[f"{slot}Tensor"] = value
        if whole_is_unknown:
            flags[:] = [-1] * len(flags)
        return
    attrs[word] = attr_list(value)
    if contains_variable(value):
        inputs[f"{slot}TensorList"] = tensor_list(helper, value)
        for i, item in enumerate(value):
            if isinstance(item, Variable):
                flags[i] = -1


@checked(input=Variable)
def slice(input: Variable, axes: Sequence[int], starts: Any, ends: Any) -> Variable:
    """Return starts:ends of the dimensions `axes`; both may be, or hold, Variables."""
    for label, value in (("starts", starts), ("ends", ends)):
        if not isinstance(value, list | tuple | Variable):
            raise ValueError(
                f"{label} of slice must be a list, a tuple or a Variable, not {value!r}."
            )
    helper = LayerHelper("slice")
    inputs: dict[str, Any] = {"Input": input}
    attrs: dict[str, Any] = {"axes": list(axes)}
    flags = [1] * len(axes)
    for value, word in ((starts, "starts"), (ends, "ends")):
        _slice_argument(
            helper, value, word, inputs=inputs, attrs=attrs, flags=flags, whole_is_unknown=True
        )
    attrs["infer_flags"] = flags
    return helper.output_of("slice", inputs, attrs, dtype=input.dtype)


def strided_slice(
    input: Variable, axes: Sequence[int], starts: Any, ends: Any, strides: Any
) -> Variable:
    """Return starts:ends:strides of the dimensions `axes`."""
    check_variable_and_dtype(input, "input", ANY, "strided_slice")
    check_type(axes, "axes", (list, tuple), "strided_slice")
    arguments = (("starts", starts), ("ends", ends), ("strides", strides))
    for label, value in arguments:
        check_type(value, label, (list, tuple, Variable), "strided_slice")
        for item in [value] if isinstance(value, Variable) else value:
            if isinstance(item, Variable):
                check_dtype(item.dtype, label, INTS, "strided_slice")
    helper = LayerHelper("strided_slice")
    inputs: dict[str, Any] = {"Input": input}
    attrs: dict[str, Any] = {"axes": list(axes)}
    flags = [1] * len(axes)
    for word, value in arguments:
        _slice_argument(
            helper, value, word, inputs=inputs, attrs=attrs, flags=flags, whole_is_unknown=False
        )
    attrs["infer_flags"] = flags
    return helper.output_of("strided_slice", inputs, attrs, dtype=input.dtype)


# -- indices -------------------------------------------------------------------------------------
@op_layer("X=input index", input=Variable)
def gather(input: Variable, index: Variable, overwrite: bool = True) -> Variable:
    """Return the rows at `index`."""


@op_layer("X=input index", input=Variable)
def gather_nd(input: Variable, index: Variable, name: str | None = None) -> Variable:
    """Return the elements or slices at the coordinates in the last dimension of `index`."""


@op_layer("X=input Ids=index updates", input=Variable)
def scatter(
    input: Variable,
    index: Variable,
    updates: Variable,
    name: str | None = None,
    overwrite: bool = True,
) -> Variable:
    """Return input with rows replaced by `updates`, or by the sum of the updates of a row."""


@op_layer("X=ref index updates", ref=Variable, updates=Variable)
def scatter_nd_add(
    ref: Variable, index: Variable, updates: Variable, name: str | None = None
) -> Variable:
    """Return ref with `updates` added at the coordinates in the last dimension of `index`."""
    if ref.dtype != updates.dtype:
        raise ValueError(
            f"ref ({ref.dtype}) and updates ({updates.dtype}) of scatter_nd_add must have one type."
        )
    return changed()


@checked(updates=Variable)
def scatter_nd(
    index: Variable, updates: Variable, shape: Sequence[int], name: str | None = None
) -> Variable:
    """Return zeros with `updates` added at coordinates."""
    return scatter_nd_add(zeros(shape, updates.dtype), index, updates, name)


@op_layer("X=input index", input=NUMBERS, index=INTS)
def index_select(input: Variable, index: Variable, dim: int = 0) -> Variable:
    """Return the slices along a dimension at `index`."""


@op_layer("x index", x=NUMBERS, index=INTS)
def index_sample(x: Variable, index: Variable) -> Variable:
    """Return, per row of x, the elements at the indices in the same row of `index`."""


def multiplex(inputs: list[Variable], index: Variable) -> Variable:
    """Return row i of the index[i]-th tensor."""
    check_type(inputs, "inputs", list, "multiplex")
    if len(inputs) < 2:
        raise ValueError(f"multiplex needs 2 tensors or more, not {len(inputs)}.")
    for i, var in enumerate(inputs):
        check_variable_and_dtype(var, f"input[{i}]", NUMBERS, "multiplex")
    check_variable_and_dtype(index, "index", INTS, "multiplex")
    return one_op("multiplex", {"X": inputs, "Ids": index}, dtype=inputs[0].dtype)


# -- padding and cropping ------------------------------------------------------------------------
@op_layer("x", x=NUMBERS)
def pad(
    x: Variable, paddings: Sequence[int], pad_value: float = 0.0, name: str | None = None
) -> Variable:
    """Return x with elements added before and after each dimension."""


@checked(input=NUMBERS, mode=one_of("constant", "reflect", "edge", error=ArgumentError))
def pad2d(
    input: Variable,
    paddings: Any = (0, 0, 0, 0),
    mode: str = "constant",
    pad_value: float = 0.0,
    data_format: str = "NCHW",
    name: str | None = None,
) -> Variable:
    """Return images padded by [top, bottom, left, right]."""
    inputs: dict[str, Any] = {"X": [input]}
    attrs = {
        "mode": mode,
        "pad_value": float(pad_value),
        "data_format": data_format,
        "paddings": [],
    }
    if isinstance(paddings, Variable):
        inputs["Paddings"] = [paddings]
    else:
        attrs["paddings"] = list(paddings)
    return one_op("pad2d", inputs, attrs, dtype=input.dtype, name=name)


@op_layer("x y", x=Variable, y=NUMBERS)
def pad_constant_like(
    x: Variable, y: Variable, pad_value: float = 0.0, name: str | None = None
) -> Variable:
    """Return y padded at its ends to the shape of x."""


@op_layer("x", tensors="Y=shape offsets", x=WIDE, shape=list | tuple | Variable)
def crop(x: Variable, shape: Any = None, offsets: Any = None, name: str | None = None) -> Variable:
    """Return the part of x that begins at `offsets`, in a given shape or that of a Variable."""
    whole = [0] * len(x.shape) if offsets is None else offsets
    return changed(
        shape=shape if isinstance(shape, Variable) else list(shape),
        offsets=whole if isinstance(whole, Variable) else list(whole),
    )


def _check_crop(label: str, value: Any, lowest: int) -> None:
    if not isinstance(value, int):
        raise TypeError(f"{label} of crop_tensor must hold ints, not {value!r}.")
    if value < lowest or (label == "shape" and value == 0):
        raise ValueError(f"{label} of crop_tensor must not hold {value}.")


@checked(x=NUMBERS, shape=list | tuple | Variable, offsets=list | tuple | Variable | None)
def crop_tensor(
    x: Variable, shape: Any = None, offsets: Any = None, name: str | None = None
) -> Variable:
    """Return the part of x that begins at `offsets`; -1 in shape means up to the end."""
    helper = LayerHelper("crop_tensor", name=name)
    out = helper.create_variable_for_type_inference(x.dtype)
    inputs: dict[str, Any] = {"X": x}
    attrs: dict[str, Any] = {}
    offsets = [0] * len(x.shape) if offsets is None else offsets
    for label, value, lowest, unknown in (("offsets", offsets, 0, -1), ("shape", shape, -1, 0)):
        slot = label.capitalize()
        if isinstance(value, Variable):
            value.stop_gradient = True
            inputs[slot] = value
            if label == "offsets":
                attrs["offsets"] = [-1] * len(x.shape)
            continue
        for item in value:
            if not isinstance(item, Variable):
                _check_crop(label, item, lowest)
        attrs[label] = attr_list(value, unknown)
        if contains_variable(value):
            inputs[f"{slot}Tensor"] = tensor_list(helper, value)
    helper.append_op(type="crop_tensor", inputs=inputs, outputs={"Out": out}, attrs=attrs)
    return out


export_defined(globals())
