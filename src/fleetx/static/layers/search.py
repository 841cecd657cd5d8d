"""Layers that search and sort: extremes, conditions, unique values, one-hot codes, shards."""

from __future__ import annotations

from typing import Any

from fleetx.static.building.argument_checks import check_type, check_variable_and_dtype
from fleetx.static.building.layer_helper import LayerHelper
from fleetx.static.building.one_op import (
    INTS,
    NUMBERS,
    one_op,
)
from fleetx.static.graph.dtypes import VarType, convert_dtype
from fleetx.static.graph.variable import Variable
from fleetx.static.layers.slicing import slice

__all__ = [
    "argmax",
    "argmin",
    "argsort",
    "nonzero",
    "one_hot",
    "shard_index",
    "topk",
    "unique",
    "unique_with_counts",
    "where",
]


def shard_index(
    input: Variable, index_num: int, nshards: int, shard_id: int, ignore_value: int = -1
) -> Variable:
    """Return positions within a shard, and `ignore_value` for what other shards hold."""
    check_variable_and_dtype(input, "input", ("int64",), "shard_index")
    if not 0 <= shard_id < nshards:
        raise ValueError(f"shard_id of shard_index must be in [0, {nshards}), not {shard_id}.")
    attrs = {
        "index_num": index_num,
        "nshards": nshards,
        "shard_id": shard_id,
        "ignore_value": ignore_value,
    }
    return one_op("shard_index", {"X": [input]}, attrs, dtype=input.dtype)


def one_hot(input: Variable, depth: Any, allow_out_of_range: bool = False) -> Variable:
    """Return codes in place of the last dimension, which has size 1."""
    check_variable_and_dtype(input, "input", INTS, "one_hot")
    check_type(depth, "depth", (int, Variable), "one_hot")
    return _one_hot("one_hot", input, depth, allow_out_of_range)


def _one_hot(op_type: str, input: Variable, depth: Any, allow_out_of_range: bool) -> Variable:
    inputs = {"X": input}
    attrs: dict[str, Any] = {"allow_out_of_range": allow_out_of_range}
    if isinstance(depth, Variable):
        depth.stop_gradient = True
        inputs["depth_tensor"] = depth
    else:
        attrs["depth"] = depth
    return one_op(op_type, inputs, attrs, dtype="float32", stop_gradient=True)


def one_hot_v2(input: Variable, depth: Any, allow_out_of_range: bool = False) -> Variable:
    """Return codes in a new last dimension; Fluid's `fluid.one_hot`."""
    check_variable_and_dtype(input, "input", INTS, "one_hot_v2")
    return _one_hot("one_hot_v2", input, depth, allow_out_of_range)


# -- searching and sorting -----------------------------------------------------------------------
_SORTABLE = (*NUMBERS, "int16", "uint8")


def argmax(x: Variable, axis: int = 0) -> Variable:
    """Return the positions of the largest elements along an axis."""
    check_variable_and_dtype(x, "x", _SORTABLE, "argmax")
    return one_op("arg_max", {"X": x}, {"axis": axis}, dtype=VarType.INT64, stop_gradient=True)


def argmin(x: Variable, axis: int = 0) -> Variable:
    """Return the positions of the smallest elements along an axis."""
    check_variable_and_dtype(x, "x", _SORTABLE, "argmin")
    return one_op("arg_min", {"X": x}, {"axis": axis}, dtype=VarType.INT64, stop_gradient=True)


def argsort(
    input: Variable, axis: int = -1, descending: bool = False, name: str | None = None
) -> tuple[Variable, Variable]:
    """Return input sorted along an axis, and where the elements came from."""
    check_variable_and_dtype(input, "input", _SORTABLE, "argsort")
    helper = LayerHelper("argsort", name=name)
    out, ids = helper.outputs_of(
        "argsort",
        {"X": input},
        {"axis": axis, "descending": descending},
        Out=input.dtype,
        Indices=VarType.INT64,
        no_grad="Out Indices",
    )
    return out, ids


def topk(input: Variable, k: Any, name: str | None = None) -> tuple[Variable, Variable]:
    """Return the k largest elements of the last dimension, and their positions."""
    check_type(input, "input", Variable, "topk")
    inputs = {"X": [input]}
    attrs = {}
    if isinstance(k, Variable):
        inputs["K"] = [k]
    else:
        attrs["k"] = int(k)
    helper = LayerHelper("top_k", name=name)
    values, indices = helper.outputs_of("top_k", inputs, attrs, Out=input.dtype, Indices="int64")
    values.stop_gradient = True
    indices.stop_gradient = True
    return values, indices


def where(condition: Variable) -> Variable:
    """Return the coordinates of all true elements, one per row."""
    check_type(condition, "condition", Variable, "where")
    return one_op("where_index", {"Condition": condition}, dtype=VarType.INT64)


def nonzero(input: Variable, as_tuple: bool = False) -> Any:
    """Return the coordinates of elements that are not zero: one per row, or one per dimension."""
    found = where(input)
    if not as_tuple:
        return found
    count = len(input.shape)
    if count == 1:
        return (found,)
    return tuple(slice(found, axes=[1], starts=[i], ends=[i + 1]) for i in range(count))


def unique(x: Variable, dtype: Any = "int32") -> tuple[Variable, Variable]:
    """Return the different values in the order they first appear, and where each element went."""
    check_variable_and_dtype(x, "x", NUMBERS, "unique")
    helper = LayerHelper("unique")
    out, index = helper.outputs_of(
        "unique", {"X": x}, {"dtype": int(convert_dtype(dtype))}, Out=x.dtype, Index=dtype
    )
    return out, index


def unique_with_counts(x: Variable, dtype: Any = "int32") -> tuple[Variable, Variable, Variable]:
    """Return the different values, where each element went, and how often the values occur."""
    check_variable_and_dtype(x, "x", NUMBERS, "unique_with_counts")
    if dtype not in ("int32", "int64"):
        raise TypeError(f"dtype of unique_with_counts must be int32 or int64, not {dtype!r}.")
    if len(x.shape) != 1:
        raise ValueError(f"unique_with_counts takes one dimension, not {x.shape}.")
    helper = LayerHelper("unique_with_counts")
    out, index, count = helper.outputs_of(
        "unique_with_counts",
        {"X": x},
        {"dtype": int(convert_dtype(dtype))},
        Out=x.dtype,
        Index=dtype,
        Count=dtype,
    )
    return out, index, count
