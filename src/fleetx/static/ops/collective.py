"""Collective ops: raw communication in a program, over the workers of `fleetx.comm`.

`ring_id` chooses the communicator. With one worker every op is the identity. Ops that set up or
synchronise streams in Paddle have nothing to do here: a communicator is made on first use, and a
collective has ended when its op returns.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch

from fleetx import comm
from fleetx.comm.buckets import DEFAULT_MB, make_buckets
from fleetx.runtime import heartbeat
from fleetx.static.graph.op_registry import Attr, effect_op, no_infer, op
from fleetx.static.graph.operator import OpRole

_COMMON = {"ring_id": 0, "use_calc_stream": False, "use_model_parallel": False}


class _WithGradient(torch.autograd.Function):
    """A collective whose gradient is another one: `there(x)` forward, `back(gradient)` backward."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, there: Any, back: Any) -> torch.Tensor:
        ctx.back = back
        result: torch.Tensor = there(x)
        return result

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> tuple[torch.Tensor, None, None]:
        return ctx.back(gradients[0]), None, None


def infer_same(op: Any, block: Any) -> None:
    """Give the output the shape and type of the input."""
    for slot_in, slot_out in (("X", "Out"), ("x", "out")):
        for source, target in zip(op.input(slot_in), op.output(slot_out), strict=False):
            origin, var = block.find_var(source), block.find_var(target)
            if origin is not None and var is not None and origin.dtype is not None:
                var.set_inferred(origin.shape, origin.dtype)


def _sum_together(
    rows: Sequence[tuple[torch.Tensor]], *, ring_id: int, ctx: Any
) -> list[torch.Tensor]:
    """Sum several tensors over all workers in few large messages."""
    tensors = [x.detach() for (x,) in rows]
    if not comm.is_connected() or any(x.layout is not torch.strided for x in tensors):
        return [comm.all_reduce(x, "sum", ring_id) for x in tensors]
    exchange = ctx.exchange
    # Nothing runs beside these sums that small first or last messages could overlap with.
    limit = DEFAULT_MB if exchange is None else exchange.limit_mb
    buckets = make_buckets(tensors, limit_mb=limit, first_mb=limit, last_mb=0.0)
    sums = [torch.cat([tensors[i].reshape(-1) for i in bucket.members]) for bucket in buckets]
    with heartbeat.collective("sum over workers"):
        if exchange is None:
            sums = [comm.all_reduce(flat, "sum", ring_id) for flat in sums]
        else:
            for handle in [exchange.all_reduce.start(flat) for flat in sums]:
                handle.wait()
    heartbeat.beat()
    results = list(tensors)
    for bucket, flat in zip(buckets, sums, strict=True):
        parts = flat.split([tensors[i].numel() for i in bucket.members])
        for i, part in zip(bucket.members, parts, strict=True):
            results[i] = part.view(tensors[i].shape)
    return results


def _is_of_gradients(op: Any) -> bool:
    return bool(int(op.attr("op_role") or 0) & OpRole.Backward)


@op(
    "c_allreduce_sum",
    attrs=_COMMON,
    infer=infer_same,
    side_effect=True,
    fused=_sum_together,
    fused_if=_is_of_gradients,
)
def _c_allreduce_sum(x: torch.Tensor, *, ring_id: int, ctx: Any) -> Any:
    total = partial(comm.all_reduce, mode="sum", ring_id=ring_id)
    return _WithGradient.apply(x, total, total) if x.requires_grad else total(x)


def _register_all_reduce(mode: str) -> None:
    @effect_op(f"c_allreduce_{mode}", attrs=_COMMON, infer=infer_same)
    def all_reduce(x: torch.Tensor, *, ring_id: int) -> torch.Tensor:
        return comm.all_reduce(x, mode, ring_id)


for _mode in ("max", "min", "prod"):
    _register_all_reduce(_mode)


@effect_op("allreduce", attrs={"sync_mode": False}, infer=infer_same)
def _all_reduce(x: torch.Tensor, *, reduce_type: int = 0, ring_id: int = 0) -> torch.Tensor:
    return comm.all_reduce(x, ("sum", "prod", "max", "min")[reduce_type], ring_id)


@effect_op("c_broadcast", attrs=_COMMON, infer=infer_same)
def _c_broadcast(x: torch.Tensor, *, ring_id: int, root: int = 0) -> torch.Tensor:
    return comm.broadcast(x, root, ring_id)


@effect_op("broadcast", attrs={"sync_mode": False}, infer=infer_same)
def _broadcast(x: torch.Tensor, *, root: int = 0, ring_id: int = 0) -> torch.Tensor:
    return comm.broadcast(x, root, ring_id)


def infer_rows(op: Any, block: Any) -> None:
    """Infer the rows that all workers gather, or the share of one worker."""
    origin = block.find_var(op.input("X")[0])
    var = block.find_var(op.output("Out")[0])
    if origin is not None and var is not None and origin.shape:
        first, workers = origin.shape[0], max(1, int(op.attr("nranks")))
        rows = first * workers if op.type == "c_allgather" else first // workers
        var.set_inferred((-1 if first < 0 else rows, *origin.shape[1:]), origin.dtype)


def _gather(x: torch.Tensor, ring_id: int) -> torch.Tensor:
    return torch.cat(comm.all_gather(x, ring_id))


def own_rows(x: torch.Tensor, op_type: str) -> slice:
    """Return which rows are this worker's, if they are divided among all."""
    size = comm.world_size()
    if x.shape[0] % size:
        raise ValueError(
            f"{op_type} divides {x.shape[0]} rows among {size} workers: not a whole number each."
        )
    rows = x.shape[0] // size
    start = comm.rank() * rows
    return slice(start, start + rows)


def _reduce_and_scatter(x: torch.Tensor, ring_id: int) -> torch.Tensor:
    own = own_rows(x, "c_reducescatter")
    return comm.all_reduce(x, "sum", ring_id)[own].clone()


@op("c_allgather", attrs={**_COMMON, "nranks": 1}, infer=infer_rows, side_effect=True)
def _c_allgather(x: torch.Tensor, *, ring_id: int) -> Any:
    return _WithGradient.apply(
        x, partial(_gather, ring_id=ring_id), partial(_reduce_and_scatter, ring_id=ring_id)
    )


@op("c_reducescatter", attrs={**_COMMON, "nranks": 1}, infer=infer_rows, side_effect=True)
def _c_reducescatter(x: torch.Tensor, *, ring_id: int) -> Any:
    return _WithGradient.apply(
        x, partial(_reduce_and_scatter, ring_id=ring_id), partial(_gather, ring_id=ring_id)
    )


for _type in ("c_sync_calc_stream", "c_sync_comm_stream"):

    @op(_type, attrs={"ring_id": Attr("INT", 0)}, infer=infer_same, grad=None)
    def _sync(x: torch.Tensor) -> torch.Tensor:
        return x


@effect_op("barrier", attrs={"ring_id": 0}, infer=infer_same)
def _barrier(x: torch.Tensor) -> torch.Tensor:
    comm.barrier()
    return x


@op(
    "c_gen_nccl_id",
    inputs="",
    attrs={"endpoint": "", "other_endpoints": Attr("STRINGS", []), "rank": 0, "ring_id": 0},
    infer=no_infer,
    grad=None,
)
def _c_gen_nccl_id() -> None:
    """Do nothing: communicators use the job's own rendezvous."""
    return


@effect_op("c_comm_init", inputs="X?", outputs="", attrs={"nranks": 1, "rank": 0, "device_id": -1})
def _c_comm_init(x: Any, *, ring_id: int = 0) -> tuple[()]:
    comm.ring(ring_id)
    return ()


@effect_op("c_comm_init_all", inputs="", outputs="", attrs={"devices": Attr("INTS", [])})
def _c_comm_init_all(*, ring_id: int = 0) -> tuple[()]:
    comm.ring(ring_id)
    return ()
