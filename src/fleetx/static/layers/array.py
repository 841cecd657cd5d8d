"""Arrays of tensors, and rank tables with which recurrent layers step through sequences."""

from __future__ import annotations

from typing import Any

from fleetx.exports import export_defined
from fleetx.static import unique_name
from fleetx.static.building.argument_checks import check_type, check_variable_and_dtype
from fleetx.static.building.layer_helper import LayerHelper
from fleetx.static.building.one_op import one_op
from fleetx.static.graph.dtypes import VarType
from fleetx.static.graph.variable import Variable


def _check_array(array: Any, layer: str) -> None:
    if not isinstance(array, Variable) or array.type != VarType.LOD_TENSOR_ARRAY:
        raise TypeError(
            f"array of {layer} must be a tensor array (see create_array), not {array!r}."
        )


def create_array(dtype: Any) -> Variable:
    """Return a new, empty array of tensors."""
    helper = LayerHelper("array")
    return helper.create_variable(
        name=f"{helper.name}.out", type=VarType.LOD_TENSOR_ARRAY, dtype=dtype
    )


def array_write(x: Variable, i: Variable, array: Variable | None = None) -> Variable:
    """Write `x` at place `i` of an array, a new one if none is given; return the array."""
    check_variable_and_dtype(i, "i", ["int64"], "array_write")
    check_type(x, "x", Variable, "array_write")
    helper = LayerHelper("array_write")
    if array is None:
        array = helper.create_variable(
            name=f"{helper.name}.out", type=VarType.LOD_TENSOR_ARRAY, dtype=x.dtype
        )
    else:
        _check_array(array, "array_write")
    helper.append_op(type="write_to_array", inputs={"X": [x], "I": [i]}, outputs={"Out": [array]})
    return array


def array_read(array: Variable, i: Variable) -> Variable:
    """Return the tensor at place `i` of an array."""
    check_variable_and_dtype(i, "i", ["int64"], "array_read")
    _check_array(array, "array_read")
    return one_op(
        "read_from_array", {"X": [array], "I": [i]}, dtype=array.dtype, layer="array_read"
    )


def array_length(array: Variable) -> Variable:
    """Return the number of places in an array."""
    _check_array(array, "array_length")
    helper = LayerHelper("array_length")
    out = helper.create_variable_for_type_inference("int64")
    out.stop_gradient = True
    helper.append_op(type="lod_array_length", inputs={"X": [array]}, outputs={"Out": [out]})
    return out


def tensor_array_to_tensor(
    input: Variable, axis: int = 1, name: str | None = None, use_stack: bool = False
) -> tuple[Variable, Variable]:
    """Join an array's tensors along `axis`, or stack them on a new one; also return the sizes."""
    _check_array(input, "tensor_array_to_tensor")
    helper = LayerHelper("tensor_array_to_tensor", name=name)
    out, index = helper.outputs_of(
        "tensor_array_to_tensor",
        {"X": [input]},
        {"axis": axis, "use_stack": use_stack},
        Out=input.dtype,
        OutIndex="int32",
    )
    return out, index


def lod_rank_table(x: Variable, level: int = 0) -> Variable:
    """Return the table of the sequences of `x`, longest first."""
    check_type(x, "x", Variable, "lod_rank_table")
    helper = LayerHelper("lod_rank_table")
    table = helper.create_variable(
        type=VarType.LOD_RANK_TABLE, name=unique_name.generate("lod_rank_table")
    )
    helper.append_op(
        type="lod_rank_table",
        inputs={"X": [x]},
        outputs={"Out": [table]},
        attrs={"level": level},
    )
    return table


def max_sequence_len(rank_table: Variable) -> Variable:
    """Return the length of the longest sequence in a rank table."""
    # Paddle's own spelling of the layer: names of variables depend on it.
    return one_op(
        "max_sequence_len", {"RankTable": [rank_table]}, dtype="int64", layer="max_seqence_len"
    )


def lod_tensor_to_array(x: Variable, table: Variable) -> Variable:
    """Cut sequences into time steps: an array whose t-th tensor has the t-th row of each."""
    check_type(x, "x", Variable, "lod_tensor_to_array")
    check_type(table, "table", Variable, "lod_tensor_to_array")
    helper = LayerHelper("lod_tensor_to_array")
    array = helper.create_variable(
        name=unique_name.generate("lod_tensor_to_array"),
        type=VarType.LOD_TENSOR_ARRAY,
        dtype=x.dtype,
    )
    helper.append_op(
        type="lod_tensor_to_array",
        inputs={"X": [x], "RankTable": [table]},
        outputs={"Out": [array]},
    )
    return array


def array_to_lod_tensor(x: Variable, table: Variable) -> Variable:
    """Put time steps together to sequences again."""
    check_type(x, "x", Variable, "array_to_lod_tensor")
    check_type(table, "table", Variable, "array_to_lod_tensor")
    return one_op("array_to_lod_tensor", {"X": [x], "RankTable": [table]}, dtype=x.dtype)


def shrink_memory(x: Variable, i: Variable, table: Variable) -> Variable:
    """Keep the rows of the sequences that go on at time step `i`."""
    return one_op(
        "shrink_rnn_memory",
        {"X": [x], "I": [i], "RankTable": [table]},
        dtype=x.dtype,
        layer="shrink_memory",
    )


def reorder_lod_tensor_by_rank(x: Variable, rank_table: Variable) -> Variable:
    """Bring rows (or sequences) into the order of a rank table."""
    check_type(x, "x", Variable, "reorder_lod_tensor_by_rank")
    check_type(rank_table, "rank_table", Variable, "reorder_lod_tensor_by_rank")
    if rank_table.type != VarType.LOD_RANK_TABLE:
        raise TypeError(
            "rank_table of reorder_lod_tensor_by_rank must come from lod_rank_table, but is "
            f"{rank_table.name!r} of type {rank_table.type}."
        )
    return one_op(
        "reorder_lod_tensor_by_rank", {"X": [x], "RankTable": [rank_table]}, dtype=x.dtype
    )


export_defined(globals())
