"""Collective communication of program variables: raw ops, and the functions of Paddle 2.

Functions that begin with `c_` choose a communicator by `ring_id`. Those of Paddle 2 (`all_reduce`,
`broadcast`, ...) change their argument in place, as in Paddle. With one worker each is
the identity.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fleetx.exports import export_defined
from fleetx.runtime import worker_environment
from fleetx.static import unique_name
from fleetx.static.building.layer_helper import LayerHelper
from fleetx.static.building.one_op import NUMBERS
from fleetx.static.building.op_layer import checked
from fleetx.static.graph.variable import Variable
from fleetx.static.layers.creation import fill_constant
from fleetx.static.layers.joining import concat, split

_REDUCTIONS = ("sum", "prod", "max", "min")


class ReduceOp:
    """The reductions over workers."""

    SUM = 0
    MAX = 1
    MIN = 2
    PROD = 3


_NAMES = {ReduceOp.SUM: "sum", ReduceOp.MAX: "max", ReduceOp.MIN: "min", ReduceOp.PROD: "prod"}


def allreduce(
    x: Variable, out: Variable | None = None, reduce_type: str = "sum", sync_mode: bool = False
) -> Variable:
    """Return the all-reduced value of a variable."""
    kind = _REDUCTIONS.index(_reduction(reduce_type))
    target = _like(x, "tmp", stop_gradient=True) if out is None else out
    return _append("allreduce", x, target, reduce_type=kind, sync_mode=sync_mode)


def broadcast_inplace(x: Variable, root: int, sync_mode: bool = False) -> Variable:
    """Broadcast a variable from worker `root` to all workers."""
    return _append("broadcast", x, x, sync_mode=sync_mode, root=root)


def c_allreduce(
    x: Variable,
    out: Variable | None = None,
    reduce_type: str = "sum",
    ring_id: int = 0,
    use_calc_stream: bool = False,
) -> Variable:
    """Return the all-reduced value of a variable."""
    kind = f"c_allreduce_{_reduction(reduce_type)}"
    target = _like(x, kind) if out is None else out
    return _append(kind, x, target, ring_id=ring_id, use_calc_stream=use_calc_stream)


def c_broadcast(
    x: Variable, root: int = 0, ring_id: int = 0, use_calc_stream: bool = False
) -> Variable:
    """Broadcast a variable from worker `root` to all workers."""
    return _append("c_broadcast", x, x, root=root, ring_id=ring_id, use_calc_stream=use_calc_stream)


def c_allgather(
    x: Variable, nranks: int, ring_id: int = 0, use_calc_stream: bool = False
) -> Variable:
    """Return the rows of all workers, concatenated by rank."""
    target = _like(x, "c_allgather")
    return _append(
        "c_allgather", x, target, nranks=nranks, ring_id=ring_id, use_calc_stream=use_calc_stream
    )


def c_reducescatter(
    x: Variable, nranks: int, ring_id: int = 0, use_calc_stream: bool = False
) -> Variable:
    """Return this worker's shard of the rows of the sum over all workers."""
    if not isinstance(x, Variable):
        raise TypeError(f"c_reducescatter() takes a Variable, not {type(x).__name__}.")
    if x.shape[0] > 0 and x.shape[0] % nranks:
        raise ValueError(
            f"c_reducescatter() divides the rows of {x.name!r} evenly, but {x.shape[0]} is not a "
            f"multiple of nranks={nranks}."
        )
    target = _like(x, "c_reducescatter")
    return _append(
        "c_reducescatter",
        x,
        target,
        nranks=nranks,
        ring_id=ring_id,
        use_calc_stream=use_calc_stream,
    )


def c_sync_calc_stream(x: Variable) -> Variable:
    """Append Paddle's op that waits for computation; a no-op, since ops run in order."""
    return _append("c_sync_calc_stream", x, x)


def c_sync_comm_stream(x: Variable, ring_id: int) -> Variable:
    """Append Paddle's op that waits for communication; a no-op, since ops run in order."""
    return _append("c_sync_comm_stream", x, x, ring_id=ring_id)


@checked(tensor=NUMBERS)
def broadcast(tensor: Variable, src: int, group: Any = 0) -> None:
    """Broadcast a variable from worker `src` to all workers, in place."""
    _append("c_broadcast", tensor, tensor, root=src, ring_id=_ring(group), use_calc_stream=True)


@checked(tensor=NUMBERS)
def all_reduce(tensor: Variable, op: int = ReduceOp.SUM, group: Any = 0) -> None:
    """All-reduce a variable in place."""
    kind = f"c_allreduce_{_name_of(op)}"
    _append(kind, tensor, tensor, ring_id=_ring(group), use_calc_stream=True)


@checked(tensor=NUMBERS)
def reduce(tensor: Variable, dst: int, op: int = ReduceOp.SUM, group: Any = 0) -> None:
    """Reduce a variable over all workers in place, on worker `dst` only."""
    kind = f"c_reduce_{_name_of(op)}"
    _append(kind, tensor, tensor, ring_id=_ring(group), use_calc_stream=True, root_id=dst)


@checked(tensor=NUMBERS, tensor_list=list)
def all_gather(tensor_list: list[Variable], tensor: Variable, group: Any = 0) -> None:
    """Append the variables of all workers to `tensor_list`, by rank."""
    workers = worker_environment.detect().world_size
    out = _append(
        "c_allgather",
        tensor,
        _like(tensor, "all_gather"),
        nranks=workers,
        ring_id=_ring(group),
        use_calc_stream=True,
    )
    tensor_list.extend(split(out, workers, 0) if workers > 1 else [out])


@checked(tensor=NUMBERS)
def scatter(
    tensor: Variable, tensor_list: Sequence[Variable] | None = None, src: int = 0, group: Any = 0
) -> None:
    """Set a variable to `tensor_list[rank]` of worker `src`."""
    worker = worker_environment.detect()
    if worker.rank == src:
        if not tensor_list or len(tensor_list) != worker.world_size:
            raise ValueError(
                f"scatter() needs one tensor per worker on worker src={src}, but got "
                f"{len(tensor_list or ())} for {worker.world_size} workers."
            )
        parts = list(tensor_list)
    else:
        # The op takes the same shape everywhere; only the values of `src` count.
        parts = [tensor] * worker.world_size
    _append(
        "c_scatter",
        concat(parts, axis=0),
        tensor,
        root=src,
        nranks=worker.world_size,
        ring_id=_ring(group),
        use_calc_stream=True,
    )


def barrier(group: Any = 0) -> None:
    """Append a barrier over all workers."""
    one = fill_constant([1], "int32", 1)
    _append("barrier", one, one, ring_id=_ring(group))


def _append(type: str, x: Variable, out: Variable, **attrs: Any) -> Variable:
    helper = LayerHelper(type)
    helper.append_op(type=type, inputs={"X": [x]}, outputs={"Out": [out]}, attrs=attrs)
    return out


def _like(x: Variable, suffix: str, *, stop_gradient: bool = False) -> Variable:
    name = unique_name.generate(f"{x.name}.{suffix}")
    block = LayerHelper(suffix).main_program.current_block()
    return block.create_var(
        name=name,
        shape=x.shape,
        dtype=x.dtype,
        type=x.type,
        persistable=x.persistable,
        stop_gradient=stop_gradient,
    )


def _reduction(name: str) -> str:
    # Paddle 1.8 spells one of them `prob`.
    wanted = "prod" if name == "prob" else name
    if wanted not in _REDUCTIONS:
        raise TypeError(f"reduce_type must be one of {', '.join(_REDUCTIONS)}, not {name!r}.")
    return wanted


def _name_of(op: int) -> str:
    if op not in _NAMES:
        raise ValueError(f"op must be one of ReduceOp's SUM, MAX, MIN and PROD, not {op!r}.")
    return _NAMES[op]


def _ring(group: Any) -> int:
    """Return the number of a communicator; None is the group of all workers."""
    if group is None:
        return 0
    if not isinstance(group, int):
        raise TypeError(
            f"group must be the number of a communicator of all workers, not {group!r}; groups of "
            "some workers are not supported."
        )
    return group


export_defined(globals())
