"""Arrays of tensors, and rank tables with which recurrent layers step through sequences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fleetx.exports import export_defined
from fleetx.static import unique_name
from fleetx.static.building.argument_checks import check_type, optional
from fleetx.static.building.layer_helper import LayerHelper
from fleetx.static.building.op_layer import checked, op_layer
from fleetx.static.graph.dtypes import VarType
from fleetx.static.graph.variable import Variable


def _array(array: Any, name: str, layer: str) -> None:
    if not isinstance(array, Variable) or array.type != VarType.LOD_TENSOR_ARRAY:
        raise TypeError(
            f"{name} of {layer} must be a tensor array (see create_array), not {array!r}."
        )


def create_array(dtype: Any) -> Variable:
    """Return a new, empty array of tensors."""
    helper = LayerHelper("array")
    return helper.create_variable(
        name=f"{helper.name}.out", type=VarType.LOD_TENSOR_ARRAY, dtype=dtype
    )


@checked(i=("int64",), x=Variable, array=optional(_array))
def array_write(x: Variable, i: Variable, array: Variable | None = None) -> Variable:
    """Write `x` at index `i` of an array, a new one if none is given; return the array."""
    helper = LayerHelper("array_write")
    if array is None:
        array = helper.create_variable(
            name=f"{helper.name}.out", type=VarType.LOD_TENSOR_ARRAY, dtype=x.dtype
        )
    helper.append_op(type="write_to_array", inputs={"X": [x], "I": [i]}, outputs={"Out": [array]})
    return array


@op_layer("X=array i", op="read_from_array", i=("int64",), array=_array)
def array_read(array: Variable, i: Variable) -> Variable:
    """Return the tensor at index `i` of an array."""


@op_layer("X=array", op="lod_array_length", element_type="int64", no_grad="Out", array=_array)
def array_length(array: Variable) -> Variable:
    """Return the number of tensors in an array."""


@op_layer("X=input", output="Out OutIndex:int32", returns="Out OutIndex", input=_array)
def tensor_array_to_tensor(
    input: Variable, axis: int = 1, name: str | None = None, use_stack: bool = False
) -> tuple[Variable, Variable]:
    """Concatenate an array's tensors along `axis`, or stack them; also return their sizes."""


def lod_rank_table(x: Variable | Sequence[Variable], level: int = 0) -> Variable:
    """Return the table of the sequences of `x`, longest first; `x` may be a list of one."""
    x = x[0] if isinstance(x, list | tuple) and len(x) == 1 else x
    check_type(x, "x", Variable, "lod_rank_table")
    helper = LayerHelper("lod_rank_table")
    table = helper.create_variable(
        type=VarType.LOD_RANK_TABLE, name=unique_name.generate("lod_rank_table")
    )
    outputs, attrs = {"Out": [table]}, {"level": level}
    helper.append_op(type="lod_rank_table", inputs={"X": [x]}, outputs=outputs, attrs=attrs)
    return table


# The layer is spelt as in Paddle: names of variables depend on it.
@op_layer("rank_table", layer="max_seqence_len", element_type="int64")
def max_sequence_len(rank_table: Variable) -> Variable:
    """Return the length of the longest sequence in a rank table."""


@checked(x=Variable, table=Variable)
def lod_tensor_to_array(x: Variable, table: Variable) -> Variable:
    """Split sequences into time steps: an array whose t-th tensor has the t-th row of each."""
    helper = LayerHelper("lod_tensor_to_array")
    array = helper.create_variable(
        name=unique_name.generate("lod_tensor_to_array"),
        type=VarType.LOD_TENSOR_ARRAY,
        dtype=x.dtype,
    )
    inputs = {"X": [x], "RankTable": [table]}
    helper.append_op(type="lod_tensor_to_array", inputs=inputs, outputs={"Out": [array]})
    return array


@op_layer("x RankTable=table", x=Variable, table=Variable)
def array_to_lod_tensor(x: Variable, table: Variable) -> Variable:
    """Merge time steps back into sequences."""


@op_layer("x i RankTable=table", op="shrink_rnn_memory")
def shrink_memory(x: Variable, i: Variable, table: Variable) -> Variable:
    """Keep the rows of the sequences that continue at time step `i`."""


def _rank_table(table: Any, name: str, layer: str) -> None:
    check_type(table, name, Variable, layer)
    if table.type != VarType.LOD_RANK_TABLE:
        raise TypeError(
            f"{name} of {layer} must come from lod_rank_table, but is {table.name!r} of type "
            f"{table.type}."
        )


@op_layer("x rank_table", x=Variable, rank_table=_rank_table)
def reorder_lod_tensor_by_rank(x: Variable, rank_table: Variable) -> Variable:
    """Reorder rows (or sequences) by a rank table."""


export_defined(globals())
