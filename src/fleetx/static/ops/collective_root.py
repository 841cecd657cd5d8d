"""Collective ops with a root: reduce to one worker, or scatter from it."""

from __future__ import annotations

from typing import Any

import torch

from fleetx import comm
from fleetx.static.graph.op_registry import effect_op, op
from fleetx.static.ops.collective import own_rows

_COMMON = {"ring_id": 0, "use_calc_stream": False}


def _like_out(op: Any, block: Any) -> None:
    """Give the output the type of the input, and its shape or, of c_scatter, a worker's share."""
    origin, var = block.find_var(op.input("X")[0]), block.find_var(op.output("Out")[0])
    if origin is None or var is None or origin.dtype is None or op.input("X") == op.output("Out"):
        return
    shape = list(origin.shape)
    if op.type == "c_scatter" and shape and shape[0] > 0:
        shape[0] //= max(1, int(op.attr("nranks")))
    var.set_inferred(tuple(shape), origin.dtype)


def _register_reduce(mode: str) -> None:
    @op(f"c_reduce_{mode}", attrs=_COMMON, infer=_like_out, grad=None, side_effect=True)
    def reduce(x: torch.Tensor, *, ring_id: int, root_id: int = 0) -> torch.Tensor:
        return comm.reduce(x, root_id, mode, ring_id)


for _mode in ("sum", "max", "min", "prod"):
    _register_reduce(_mode)


@effect_op("c_scatter", attrs=_COMMON, infer=_like_out)
def _c_scatter(x: torch.Tensor, *, ring_id: int, root: int = 0, nranks: int = 1) -> torch.Tensor:
    own = own_rows(x, "c_scatter")
    return comm.broadcast(x, root, ring_id)[own].clone()
