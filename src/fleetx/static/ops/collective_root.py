"""Collective ops with a root: reduce to one worker, or scatter from it."""

from __future__ import annotations

import torch

from fleetx import comm
from fleetx.static.graph.op_registry import effect_op, op
from fleetx.static.ops.collective import infer_rows, infer_same, own_rows

_COMMON = {"ring_id": 0, "use_calc_stream": False}


def _register_reduce(mode: str) -> None:
    @op(f"c_reduce_{mode}", attrs=_COMMON, infer=infer_same, grad=None, side_effect=True)
    def reduce(x: torch.Tensor, *, ring_id: int, root_id: int = 0) -> torch.Tensor:
        return comm.reduce(x, root_id, mode, ring_id)


for _mode in ("sum", "max", "min", "prod"):
    _register_reduce(_mode)


@effect_op("c_scatter", attrs=_COMMON, infer=infer_rows)
def _c_scatter(x: torch.Tensor, *, ring_id: int, root: int = 0, nranks: int = 1) -> torch.Tensor:
    own = own_rows(x, "c_scatter")
    return comm.broadcast(x, root, ring_id)[own].clone()
