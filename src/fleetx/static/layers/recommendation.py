"""Layers of recommendation models: hashed ids, instances by tag, rows of sparse gradients."""

from __future__ import annotations

from typing import Any

from fleetx.exports import export_defined
from fleetx.static.building.argument_checks import check_type
from fleetx.static.building.layer_helper import LayerHelper
from fleetx.static.building.one_op import INTS
from fleetx.static.building.op_layer import op_layer
from fleetx.static.graph.dtypes import VarType
from fleetx.static.graph.variable import Variable


@op_layer(
    "X=input",
    attrs={"mod_by": "hash_size"},
    no_grad="Out",
    input=INTS,
    hash_size=int,
    num_hash=int,
)
def hash(input: Variable, hash_size: int, num_hash: int = 1, name: str | None = None) -> Variable:
    """Hash the ids of each row to `num_hash` values below `hash_size`.

    The values are those of Paddle (XXH64 with the seeds 0, 1, ...).

    Args:
        input: int32 or int64 ids of shape [rows, ids].
        hash_size: the exclusive upper bound of the values.
        num_hash: the number of values per row; the result has shape [rows, num_hash, 1].
    """


def filter_by_instag(
    ins: Variable,
    ins_tag: Variable,
    filter_tag: Variable,
    is_lod: bool,
    out_val_if_empty: int = 0,
) -> list[Variable]:
    """Keep the instances that have one of the wanted tags; return them and a weight for each.

    Args:
        ins: instances of shape [rows, width].
        ins_tag: int64 tags, a sequence per instance.
        filter_tag: the wanted int64 tags, shape [tags].
        is_lod: whether an instance is a sequence of rows; otherwise it is one row.
        out_val_if_empty: the value of a row with weight 0 that is returned if no instance remains.
    """
    helper = LayerHelper("filter_by_instag")
    inputs = {"Ins": ins, "Ins_tag": ins_tag, "Filter_tag": filter_tag}
    attrs = {"is_lod": is_lod, "out_val_if_empty": out_val_if_empty}
    types = {"Out": ins.dtype, "LossWeight": "float64", "IndexMap": ins_tag.dtype}
    out, weight, _ = helper.outputs_of("filter_by_instag", inputs, attrs, **types)
    return [out, weight]


@op_layer("x", x=Variable)
def merge_selected_rows(x: Variable, name: str | None = None) -> Variable:
    """Sum the values of duplicate rows of SelectedRows."""


def _check_rows(x: Any, name: str, layer: str) -> None:
    check_type(x, name, Variable, layer)
    if x.is_data and x.type != VarType.SELECTED_ROWS:  # gradients may have rows
        raise TypeError(f"{name} of {layer} must have selected rows, but {x.name!r} is a tensor.")


@op_layer("x", x=_check_rows)
def get_tensor_from_selected_rows(x: Variable, name: str | None = None) -> Variable:
    """Return the values of SelectedRows as a tensor."""


export_defined(globals())
