"""Layers that search and sort: argmax, top k, where, unique, one-hot, shard indices."""

from __future__ import annotations

import functools
from typing import Any

from fleetx.exports import export_defined
from fleetx.static.building.layer_helper import LayerHelper
from fleetx.static.building.one_op import (
    INTS,
    NUMBERS,
)
from fleetx.static.building.op_layer import changed, checked, op_layer
from fleetx.static.graph.variable import Variable
from fleetx.static.layers.slicing import slice


@op_layer("X=input", input=("int64",))
def shard_index(
    input: Variable, index_num: int, nshards: int, shard_id: int, ignore_value: int = -1
) -> Variable:
    """Return indices within a shard, and `ignore_value` for those in other shards."""
    if not 0 <= shard_id < nshards:
        raise ValueError(f"shard_id of shard_index must be in [0, {nshards}), not {shard_id}.")
    return changed()


_codes = functools.partial(
    op_layer,
    "X=input",
    tensors="depth_tensor=depth",
    element_type="float32",
    no_grad="depth_tensor Out",
)


@_codes(input=INTS, depth=int | Variable)
def one_hot(input: Variable, depth: Any, allow_out_of_range: bool = False) -> Variable:
    """Return one-hot vectors in place of the last dimension, which has size 1."""


@_codes(input=INTS)
def one_hot_v2(input: Variable, depth: Any, allow_out_of_range: bool = False) -> Variable:
    """Return one-hot vectors in a new last dimension; Fluid's `fluid.one_hot`."""


# -- searching and sorting -----------------------------------------------------------------------
_SORTABLE = (*NUMBERS, "int16", "uint8")


_arg = functools.partial(op_layer, "x", element_type="int64", no_grad="Out", x=_SORTABLE)


@_arg(op="arg_max", layer="arg_max")
def argmax(x: Variable, axis: int = 0) -> Variable:
    """Return the indices of the maxima along an axis."""


@_arg(op="arg_min", layer="arg_min")
def argmin(x: Variable, axis: int = 0) -> Variable:
    """Return the indices of the minima along an axis."""


@op_layer(
    "X=input",
    output="Out Indices:int64",
    returns="Out Indices",
    no_grad="Out Indices",
    input=_SORTABLE,
)
def argsort(
    input: Variable, axis: int = -1, descending: bool = False, name: str | None = None
) -> tuple[Variable, Variable]:
    """Return input sorted along an axis, and the original indices."""


@checked(input=Variable)
def topk(input: Variable, k: Any, name: str | None = None) -> tuple[Variable, Variable]:
    """Return the k largest elements of the last dimension, and their indices."""
    inputs, attrs = {"X": [input]}, {}
    if isinstance(k, Variable):
        inputs["K"] = [k]
    elif k is not None:  # None means the op's default, 1
        attrs["k"] = int(k)
    values, indices = LayerHelper("top_k", name=name).outputs_of(
        "top_k", inputs, attrs, Out=input.dtype, Indices="int64", no_grad="Out Indices"
    )
    return values, indices


@op_layer(
    "condition",
    op="where_index",
    layer="where_index",
    element_type="int64",
    condition=Variable,
)
def where(condition: Variable) -> Variable:
    """Return the coordinates of all true elements, one per row."""


def nonzero(input: Variable, as_tuple: bool = False) -> Any:
    """Return the coordinates of elements that are not zero: one per row, or one per dimension."""
    found = where(input)
    if not as_tuple:
        return found
    count = len(input.shape)
    if count == 1:
        return (found,)
    return tuple(slice(found, axes=[1], starts=[i], ends=[i + 1]) for i in range(count))


@op_layer(
    "x",
    output="Out:x Index",
    returns="Out Index",
    element_type="dtype",
    attrs={"dtype": "dtype"},
    x=NUMBERS,
)
def unique(x: Variable, dtype: Any = "int32") -> tuple[Variable, Variable]:
    """Return the unique values in order of appearance, and the index of each element's value."""


@op_layer(
    "x",
    output="Out:x Index Count",
    returns="Out Index Count",
    element_type="dtype",
    attrs={"dtype": "dtype"},
    x=NUMBERS,
)
def unique_with_counts(x: Variable, dtype: Any = "int32") -> tuple[Variable, Variable, Variable]:
    """Return the unique values, the index of each element's value, and the counts."""
    if dtype not in ("int32", "int64"):
        raise TypeError(f"dtype of unique_with_counts must be int32 or int64, not {dtype!r}.")
    if len(x.shape) != 1:
        raise ValueError(f"unique_with_counts takes one dimension, not {x.shape}.")
    return changed()


export_defined(globals(), without="one_hot_v2")
