"""Data parallelism written into a program: what `minimize` adds for several workers.

The loss's gradient is divided by the number of workers, every gradient is summed over them after
the backward pass, and the startup program ends with a broadcast of rank 0's parameters. All of it
is visible in the program; the lowering fuses the sums of gradients into a few large all-reduces
that overlap with the backward pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fleetx.static.graph.operator import OpRole
from fleetx.static.graph.program import Program
from fleetx.static.optimizer.gradient_merge_optimizer import SUFFIX


def insert_all_reduce(
    program: Program,
    params_grads: Sequence[tuple[Any, Any]],
    workers: int,
    rings: int = 1,
    merged: Any = None,
    weight: str | None = None,
) -> None:
    """Make a training program average its gradients over workers.

    `weight` names a variable with this worker's weight in the average; without it all have the
    same.
    `merged` is the block of the updates if gradients are merged over several runs: they are summed
    there, after the division by the number of runs, where modules exchange them too.
    If every worker has its own part of a parameter, its gradient is already complete.
    """
    scale_loss_gradient(program, workers, weight)
    pairs = [(param, grad) for param, grad in params_grads if grad is not None]
    names = {param.name: param.name + SUFFIX if merged else grad.name for param, grad in pairs}
    grads = [names[param.name] for param, _ in pairs if not param.is_distributed]
    if merged:
        scaled = set(names.values())
        start = sum(op.type == "scale" and op.output("Out")[0] in scaled for op in merged.ops)
        _insert_sums(merged, start, grads, 1)
        return
    block = program.global_block()
    # Updates begin after the last op of the backward pass, before clipping.
    index = 1 + max(i for i, op in enumerate(block.ops) if op.backward_id is not None)
    _insert_sums(block, index, grads, rings)
    if grads:
        block.insert_op(
            index + len(grads),
            type="c_sync_comm_stream",
            inputs={"X": [grads[-1]]},
            outputs={"Out": [grads[-1]]},
            attrs={"ring_id": 0, "op_role": OpRole.Backward},
        )


def _insert_sums(block: Any, index: int, names: Sequence[str], rings: int) -> None:
    for i, name in enumerate(names):
        block.insert_op(
            index + i,
            type="c_allreduce_sum",
            inputs={"X": [name]},
            outputs={"Out": [name]},
            attrs={"ring_id": i % rings, "use_calc_stream": False, "op_role": OpRole.Backward},
        )


def scale_loss_gradient(program: Program, workers: int, weight: str | None) -> None:
    """Give the gradients of this worker a weight: that of a variable, or 1 / `workers`."""
    block = program.global_block()
    wanted = OpRole.Backward | OpRole.Loss
    for i, op in enumerate(block.ops):
        if op.op_role == wanted and op.type == "fill_constant":
            name = op.output("Out")[0]
            block.insert_op(
                i + 1,
                type="scale",
                inputs={"X": [name]} if weight is None else {"X": [name], "ScaleTensor": [weight]},
                outputs={"Out": [name]},
                attrs={"scale": 1.0 / workers, "op_role": OpRole.Backward},
            )
            return
    raise ValueError("the program has no backward pass; call minimize() on a loss first.")


def insert_broadcast(startup: Program, names: list[str], rings: int = 1) -> None:
    """Make a startup program end with rank 0's values on all workers."""
    block = startup.global_block()
    for i, name in enumerate(names):
        block.append_op(
            type="c_broadcast",
            inputs={"X": [name]},
            outputs={"Out": [name]},
            attrs={"ring_id": i % rings, "root": 0, "op_role": OpRole.Forward},
        )


def use_sync_batch_norm(program: Program) -> None:
    """Compute the statistics of batch normalisation over all workers."""
    for block in program.blocks:
        for op in block.ops:
            if op.type in ("batch_norm", "batch_norm_grad"):
                op.type = "sync_" + op.type
    program.bump_version()
