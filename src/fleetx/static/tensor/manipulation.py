"""Reshaping, reordering, splitting and indexing of tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fleetx.exports import export_defined
from fleetx.static import layers
from fleetx.static.building.adapted import adapted
from fleetx.static.building.argument_checks import check_type
from fleetx.static.building.constants import constant
from fleetx.static.building.layer_helper import LayerHelper
from fleetx.static.building.one_op import mixed_argument, one_op
from fleetx.static.building.op_layer import changed, op_layer
from fleetx.static.graph.dtypes import convert_dtype
from fleetx.static.graph.variable import Variable
from fleetx.static.tensor.common import axis_list, unary

cast = layers.cast
gather_nd = layers.gather_nd
scatter_nd = layers.scatter_nd
scatter_nd_add = layers.scatter_nd_add
shard_index = layers.shard_index
slice = layers.slice
transpose = layers.transpose
unbind = layers.unbind
unstack = layers.unstack
reshape = adapted(layers.reshape, "x, shape, name")
concat = adapted(layers.concat, "x -> input, axis, name")
stack = adapted(layers.stack, "x, axis, name")
split = adapted(layers.split, "x -> input, num_or_sections, axis -> dim, name", axis=0)
unsqueeze = adapted(layers.unsqueeze, "x -> input, axis -> axes, name")
scatter = adapted(layers.scatter, "x -> input, index, updates, overwrite, name")
strided_slice = adapted(layers.strided_slice, "x -> input, axes, starts, ends, strides, name")
crop = adapted(layers.crop_tensor, "x, shape, offsets, name", name="crop")


def moveaxis(
    x: Variable, source: int | Sequence[int], destination: int | Sequence[int], name: Any = None
) -> Variable:
    """Move axes of x to other positions; the others keep their order."""
    rank = len(x.shape)
    sources = [a % rank for a in axis_list(source) or []]
    targets = [a % rank for a in axis_list(destination) or []]
    if len(sources) != len(targets):
        raise ValueError(f"moveaxis got {len(sources)} axes to move to {len(targets)} positions.")
    order: list[int | None] = [None] * rank
    for axis, place in zip(sources, targets, strict=True):
        order[place] = axis
    rest = iter(a for a in range(rank) if a not in sources)
    return layers.transpose(x, [next(rest) if a is None else a for a in order], name)


def chunk(x: Variable, chunks: int, axis: Any = 0, name: str | None = None) -> list[Variable]:
    """Split x into equal parts."""
    check_type(chunks, "chunks", int, "chunk")
    return layers.split(input=x, num_or_sections=chunks, dim=axis, name=name)


def squeeze(x: Variable, axis: Any = None, name: str | None = None) -> Variable:
    """Return x without axes of size 1: the given ones, or all."""
    return layers.squeeze(x, axis_list(axis) or [], name)


@op_layer("x", op="flatten_contiguous_range", output="Out XShape", x=Variable)
def flatten(
    x: Variable, start_axis: int = 0, stop_axis: int = -1, name: str | None = None
) -> Variable:
    """Flatten the axes from `start_axis` to `stop_axis` into one."""


def _with_sizes(
    op_type: str, x: Variable, sizes: Any, name: Any, names: Any, layer: str
) -> Variable:
    """Append an op whose sizes are a list, a Variable, or a list with Variables in it."""
    check_type(x, "x", Variable, layer)
    helper = LayerHelper(layer, name=name)
    inputs: dict[str, Any] = {"X": x}
    attrs: dict[str, Any] = {}
    attr, whole, parts = names
    mixed_argument(helper, sizes, inputs=inputs, attrs=attrs, attr=attr, whole=whole, parts=parts)
    return helper.output_of(op_type, inputs, attrs, dtype=x.dtype)


def tile(x: Variable, repeat_times: Any, name: str | None = None) -> Variable:
    """Tile x along each axis."""
    names = ("repeat_times", "RepeatTimes", "repeat_times_tensor")
    return _with_sizes("tile", x, repeat_times, name, names, "tile")


def expand(x: Variable, shape: Any, name: str | None = None) -> Variable:
    """Broadcast x to the given shape; -1 keeps a dimension."""
    names = ("shape", "Shape", "expand_shapes_tensor")
    return _with_sizes("expand_v2", x, shape, name, names, "expand")


broadcast_to = adapted(expand, "x, shape, name", name="broadcast_to")


def expand_as(x: Variable, y: Variable, name: str | None = None) -> Variable:
    """Broadcast x to y's shape."""
    check_type(x, "x", Variable, "expand_as")
    attrs = {"target_shape": list(y.shape)}
    return one_op("expand_as_v2", {"X": x, "Y": y}, attrs, dtype=x.dtype, name=name)


def broadcast_shape(x_shape: Sequence[int], y_shape: Sequence[int]) -> list[int]:
    """Return the broadcast of two shapes; -1 is an unknown size."""
    longer, shorter = sorted((list(x_shape), list(y_shape)), key=len, reverse=True)
    shorter = [1] * (len(longer) - len(shorter)) + shorter
    shape = []
    for a, b in zip(longer, shorter, strict=True):
        if a != b and 1 not in (a, b) and -1 not in (a, b):
            raise ValueError(f"shapes {list(x_shape)} and {list(y_shape)} do not broadcast.")
        shape.append(b if a == 1 else a if b == 1 else max(a, b))
    return shape


def broadcast_tensors(input: Sequence[Variable], name: str | None = None) -> list[Variable]:
    """Broadcast several tensors to a common shape."""
    helper = LayerHelper("broadcast_tensors", name=name)
    outs = [helper.create_variable_for_type_inference(x.dtype) for x in input]
    helper.append_op(type="broadcast_tensors", inputs={"X": list(input)}, outputs={"Out": outs})
    return outs


def gather(x: Variable, index: Variable, axis: Any = None, name: str | None = None) -> Variable:
    """Return the entries of x at the given indices along an axis (0 by default)."""
    check_type(x, "x", Variable, "gather")
    inputs = {"X": x, "Index": index}
    if isinstance(axis, Variable):
        return one_op("gather", {**inputs, "Axis": axis}, {}, dtype=x.dtype, name=name)
    return one_op("gather", inputs, {"axis": axis or 0}, dtype=x.dtype, name=name)


@op_layer("Input=arr Index=indices", output="Result", attrs={"Axis": "axis"})
def take_along_axis(arr: Variable, indices: Variable, axis: int) -> Variable:
    """Return the entries at the given indices along an axis, element-wise."""


@op_layer(
    "Input=arr Index=indices Value=values",
    output="Result",
    attrs={"Axis": "axis", "Reduce": "reduce", "Include_self": "include_self"},
)
def put_along_axis(
    arr: Variable,
    indices: Variable,
    values: Any,
    axis: int,
    reduce: str = "assign",
    include_self: bool = True,
) -> Variable:
    """Return arr with values put at, or added to, the given indices along an axis."""
    if not isinstance(values, Variable):
        values = constant([1], arr.dtype, values)
    return changed(values=expand_as(values, indices) if values.shape != indices.shape else values)


def flip(x: Variable, axis: Any, name: str | None = None) -> Variable:
    """Reverse the order of the elements along some axes."""
    return unary("flip", x, {"axis": axis_list(axis)}, name=name)


reverse = flip


def roll(x: Variable, shifts: Any, axis: Any = None, name: str | None = None) -> Variable:
    """Roll the elements along some axes; those shifted out re-enter at the other end."""
    if isinstance(shifts, Variable):
        attrs: dict[str, Any] = {"axis": axis_list(axis) or []}
        inputs = {"X": x, "ShiftsTensor": shifts}
        return one_op("roll", inputs, attrs, dtype=x.dtype, name=name)
    return unary("roll", x, {"shifts": axis_list(shifts), "axis": axis_list(axis) or []}, name=name)


def unique(
    x: Variable,
    return_index: bool = False,
    return_inverse: bool = False,
    return_counts: bool = False,
    axis: int | None = None,
    dtype: Any = "int64",
    name: str | None = None,
) -> Any:
    """Return the sorted unique values, with indices, inverse and counts if requested."""
    helper = LayerHelper("unique", name=name)
    attrs = {
        "dtype": int(convert_dtype(dtype)),
        "return_index": return_index,
        "return_inverse": return_inverse,
        "return_counts": return_counts,
        "axis": axis_list(axis) or [],
        "is_sorted": True,
    }
    outs = {"Out": helper.create_variable_for_type_inference(x.dtype, stop_gradient=True)}
    for slot in ("Indices", "Index", "Counts"):
        outs[slot] = helper.create_variable_for_type_inference(dtype, stop_gradient=True)
    helper.append_op(type="unique", inputs={"X": x}, outputs=outs, attrs=attrs)
    found = [outs["Out"]]
    wanted = (("Indices", return_index), ("Index", return_inverse), ("Counts", return_counts))
    found += [outs[slot] for slot, flag in wanted if flag]
    return found[0] if len(found) == 1 else tuple(found)


# A program's variables are never changed in place, so these are the same functions.
reshape_, scatter_, squeeze_, unsqueeze_ = reshape, scatter, squeeze, unsqueeze


export_defined(
    globals(),
    *("cast", "gather_nd", "scatter_nd", "scatter_nd_add", "shard_index", "slice", "transpose"),
    *("unbind", "unstack"),
)
