"""Ops on SelectedRows: some rows of a tall tensor, which torch's sparse tensors hold.

A gradient that is dense here although Paddle's has selected rows is its own merged form.
"""

from __future__ import annotations

from torch import Tensor

from fleetx.kernels.row_gradients import rows_of
from fleetx.static.graph.op_registry import detached_op, op
from fleetx.static.shapes.infer_rules import same_as


@op("merge_selected_rows", grad=None, infer=same_as())
def merge_selected_rows(x: Tensor) -> Tensor:
    """Add up the values of rows that occur more than once, and sort the rows if some do."""
    if not x.is_sparse:
        return x
    ids = rows_of(x)[0]
    return x if len(ids.unique()) == len(ids) else x.coalesce()  # rows that differ keep their order


@detached_op("get_tensor_from_selected_rows", infer=same_as())
def get_tensor_from_selected_rows(x: Tensor) -> Tensor:
    """Return the values of the rows, one after the other."""
    return rows_of(x)[1] if x.is_sparse else x
