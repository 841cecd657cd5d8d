"""Ops that send a tensor to one worker and receive one from it, as a program that is cut into the
stages of a pipeline has them.

`peer` is a stage of the program's pipeline; in a program without one, the rank of a worker. The
shape of a variable with open dimensions travels in front of it (`dynamic_shape`).
"""

from __future__ import annotations

from typing import Any

import torch

from fleetx.comm.point_to_point import Peers
from fleetx.static.graph.dtypes import to_torch
from fleetx.static.graph.op_registry import Attr, effect_op

_COMMON = {"ring_id": 0, "use_calc_stream": False}


def _peers(ctx: Any) -> Peers:
    return Peers.all_workers() if ctx.peers is None else ctx.peers


@effect_op("send_v2", outputs="", attrs=_COMMON)
def _send(x: torch.Tensor, *, peer: int = 0, dynamic_shape: bool = False, ctx: Any) -> tuple[()]:
    _peers(ctx).send(x, peer, with_shape=dynamic_shape)
    return ()


def _declared(op: Any, block: Any) -> None:
    """The output is what the attributes say."""
    var = block.find_var(op.output("Out")[0])
    if var is not None:
        var.set_inferred(tuple(op.attr("out_shape")), op.attr("dtype"))


@effect_op(
    "recv_v2",
    inputs="",
    attrs={**_COMMON, "out_shape": Attr("INTS", []), "dtype": 5},
    infer=_declared,
)
def _receive(
    *,
    out_shape: list[int],
    dtype: int,
    peer: int = 0,
    dynamic_shape: bool = False,
    ctx: Any,
) -> torch.Tensor:
    return _peers(ctx).receive(
        peer,
        shape=out_shape,
        has_shape=dynamic_shape,
        dtype=to_torch(dtype),
        device=ctx.device,
    )
