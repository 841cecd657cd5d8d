"""Tensor-parallel linear maps and embeddings of programs: `paddle.distributed.split`.

Every worker feeds the same batch and computes with its shard of the weight; the partial results are
summed or concatenated. The collectives are differentiable, so that the gradient of the workers'
mean loss, which Fleet's optimizer takes, is that of the whole layer.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any

import torch

from fleetx.exports import export_defined
from fleetx.runtime import membership
from fleetx.static import layers
from fleetx.static.building.argument_checks import check_choice
from fleetx.static.graph.default_programs import default_startup_program
from fleetx.static.graph.variable import Parameter, Variable
from fleetx.static.layers import collective
from fleetx.static.nn import functional as F
from fleetx.static.nn.common import Embedding, Linear

_LARGEST_SEED = 2**31 - 2


def split(
    x: Variable,
    size: Sequence[int],
    operation: str,
    axis: int = 0,
    num_partitions: int = 1,
    gather_out: bool = True,
    weight_attr: Any = None,
    bias_attr: Any = None,
    name: str | None = None,
) -> Variable:
    """Apply a layer whose weight is sharded over the workers.

    Args:
        x: the input, the same on all workers. For `axis=0` of a linear map it may also be this
            worker's shard of the last dimension.
        size: the shape of the whole weight.
        operation: "linear", or "embedding", whose shards have one more row, for ids of others.
        axis: shard the rows (0) or the columns (1) of the weight; 0 for an embedding.
        num_partitions: the number of shards: that of the workers, or 1 not to shard.
        gather_out: whether a linear map returns the whole result; otherwise this worker's partial
            sum (axis=0, without a bias) or its columns (axis=1).
        weight_attr, bias_attr: ParamAttr of this worker's shard.
        name: has no effect on the names of the parameters, as in Paddle.
    """
    rows, columns = _check(x, size, operation, axis, num_partitions)
    rank = _place(num_partitions)
    is_term = operation == "linear" and axis == 0 and num_partitions > 1 and not gather_out
    if is_term and bias_attr is not False:
        raise ValueError(
            "gather_out of split() is False with axis=0, which returns this worker's term of a "
            f"sum; a bias belongs after the sum: set bias_attr=False instead of {bias_attr!r}."
        )
    if operation == "embedding":
        return _look_up(x, rows, columns, num_partitions, rank, weight_attr)
    if axis == 0:
        return _by_rows(x, rows, columns, num_partitions, rank, gather_out, weight_attr, bias_attr)
    linear = Linear(rows, columns // num_partitions, weight_attr, bias_attr, name)
    _divide(num_partitions, rank, linear.weight, linear.bias)
    out = linear(x)
    if num_partitions == 1 or not gather_out:
        return out
    stacked = collective.c_allgather(out, num_partitions, use_calc_stream=True)
    return layers.concat(layers.split(stacked, num_partitions, 0), axis=len(out.shape) - 1)


def _by_rows(
    x: Variable,
    rows: int,
    columns: int,
    parts: int,
    rank: int,
    gather_out: bool,
    weight_attr: Any,
    bias_attr: Any,
) -> Variable:
    share = rows // parts
    last = len(x.shape) - 1
    if x.shape[last] == rows and parts > 1:
        x = layers.slice(x, axes=[last], starts=[rank * share], ends=[(rank + 1) * share])
    linear = Linear(share, columns, weight_attr, bias_attr)
    _divide(parts, rank, linear.weight)
    out = F.linear(x, linear.weight)
    # The bias is replicated and added once, after the sum.
    total = _sum(out, parts) if gather_out else out
    return total if linear.bias is None else layers.elementwise_add(total, linear.bias, axis=-1)


def _look_up(
    ids: Variable, rows: int, columns: int, parts: int, rank: int, weight_attr: Any
) -> Variable:
    share = (rows + parts - 1) // parts
    own = max(0, min(share, rows - rank * share))
    table = Embedding(own + 1, columns, padding_idx=own, weight_attr=weight_attr)
    _divide(parts, rank, table.weight)
    if parts > 1:
        ids = layers.shard_index(ids, rows, parts, rank, ignore_value=own)
    return _sum(table(ids), parts)


def _sum(out: Variable, parts: int) -> Variable:
    return out if parts == 1 else collective.c_allreduce(out, use_calc_stream=True)


def _divide(parts: int, rank: int, *parameters: Parameter | None) -> None:
    """Mark parameters as sharded, and seed their initializers by rank."""
    startup = default_startup_program()
    block = startup.global_block()
    base = startup.random_seed or torch.initial_seed()
    seeds = (0, startup.random_seed)  # not a seed given to the initializer
    for param in parameters:
        if param is None or parts == 1:
            continue
        param.is_distributed = True
        block.vars[param.name].is_distributed = True  # type: ignore[attr-defined]
        for op in block.ops:
            if param.name in op.output_arg_names and op.attrs.get("seed") in seeds:
                # With the same seed, the shards would be equal and stay equal.
                own = base + zlib.crc32(f"{param.name} {rank}".encode())
                op.set_attr("seed", own % _LARGEST_SEED + 1)


def _place(parts: int) -> int:
    """Return the index of this worker's shard."""
    member = membership.own()
    if member is None:
        raise RuntimeError(
            "split() divides a layer among the workers of a job: call fleet.init() before it."
        )
    if parts not in (1, member.worker_num()):
        raise ValueError(
            f"num_partitions of split() is {parts}, but the job has {member.worker_num()} "
            "worker(s): a layer is divided among all of them, or not at all (num_partitions=1)."
        )
    return member.worker_index() if parts > 1 else 0


def _check(x: Any, size: Any, operation: Any, axis: Any, num_partitions: Any) -> tuple[int, int]:
    if not isinstance(x, Variable):
        raise TypeError(f"split() takes a Variable of a program, not {type(x).__name__}.")
    if not isinstance(size, list | tuple) or len(size) != 2:
        raise ValueError(
            f"size of split() is the shape of the weight, a list or tuple of two, not {size!r}."
        )
    check_choice(operation, "operation", ("linear", "embedding"), "split()")
    if axis not in (0, 1) or (operation == "embedding" and axis != 0):
        allowed = "0" if operation == "embedding" else "0 or 1"
        raise ValueError(
            f"axis of split() must be {allowed} for operation={operation!r}, not {axis!r}."
        )
    if not isinstance(num_partitions, int) or num_partitions < 1:
        raise ValueError(f"num_partitions of split() must be at least 1, not {num_partitions!r}.")
    rows, columns = (int(n) for n in size)
    if operation == "embedding":
        if rows < num_partitions:
            raise ValueError(
                f"a table of {rows} rows cannot be divided into num_partitions={num_partitions}."
            )
        return rows, columns
    if size[axis] % num_partitions:
        what = ("rows", "columns")[axis]
        raise ValueError(
            f"split() divides the {size[axis]} {what} of the weight evenly: "
            f"num_partitions={num_partitions} must divide them."
        )
    widths = (rows // num_partitions, rows) if axis == 0 else (rows,)
    if x.shape[-1] >= 0 and x.shape[-1] not in widths:
        raise ValueError(
            f"the last dimension of x in split() is {x.shape[-1]}: it must be "
            f"{' or '.join(map(str, sorted(set(widths))))} for size={tuple(size)}, axis={axis} and "
            f"num_partitions={num_partitions}."
        )
    return rows, columns


export_defined(globals())
