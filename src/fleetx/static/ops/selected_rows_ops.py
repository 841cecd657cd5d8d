"""Ops on selected rows, which are sparse tensors here: duplicates added up, and their values."""

from __future__ import annotations

from typing import Any

import torch

from fleetx.static.graph.op_registry import op
from fleetx.static.shapes.lod_infer import input_var, set_output


def _rows(op: Any, block: Any) -> None:
    x = input_var(op, block, "X")
    set_output(op, block, "Out", (-1, *x.shape[1:]), x.dtype)


def _check(x: torch.Tensor, type: str) -> None:
    if x.layout is not torch.sparse_coo:
        raise TypeError(f"{type} takes selected rows, not a dense tensor of shape {list(x.shape)}.")


@op("merge_selected_rows", grad=None, infer=_rows, lod="none")
def merge_selected_rows(x: torch.Tensor) -> torch.Tensor:
    """Return the rows in order, those that occur more than once added up."""
    _check(x, "merge_selected_rows")
    return x.coalesce()


@op("get_tensor_from_selected_rows", grad=None, infer=_rows, lod="none")
def get_tensor_from_selected_rows(x: torch.Tensor) -> torch.Tensor:
    """Return the values of the rows as a dense tensor."""
    _check(x, "get_tensor_from_selected_rows")
    return x._values()
