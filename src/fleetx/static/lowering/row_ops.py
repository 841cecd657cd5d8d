"""Ops that compute on sparse gradients, without making them dense.

Most apply their own function to the values. Where the function is not linear, equal rows are summed
first, as Paddle does for its SelectedRows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fleetx.comm.row_all_reduce import all_reduce_rows
from fleetx.kernels.row_gradients import (
    add_up,
    make_rows,
    merge,
    merged,
    rows_of,
    with_values,
)
from fleetx.kernels.updates import RULES
from fleetx.static.graph.block import Block
from fleetx.static.graph.operator import Operator

Call = Callable[..., Any]
_LOOKUP_GRADS = frozenset({"lookup_table_grad", "lookup_table_v2_grad"})


@dataclass(frozen=True)
class RowOp:
    """The implementation of an op on rows."""

    on_rows: Callable[[Call, Operator, Any], Call]
    """The function on rows, from that of the op, the op and its context."""
    keeps: bool = True
    """Whether its outputs are sparse too; otherwise only the inputs changed in place are."""
    accepts: Callable[[Operator, set[str], Block], bool] = lambda op, rows, block: True
    """Whether the op can compute on the inputs `rows`."""


def makes_rows(op: Operator) -> bool:
    """Return whether an op is the sparse gradient of a look-up."""
    return op.type in _LOOKUP_GRADS and bool(op.attr("is_sparse"))


def as_rows(grad: Tensor, *ids: Tensor) -> Tensor:
    """Return a table's gradient as rows; of a dense one, those with these ids.

    A compiled step has dense gradients. Without ids, the rows are those that are not zero.
    """
    if grad.is_sparse:
        return grad
    if ids:
        rows = torch.cat([each.reshape(-1) for each in ids]).unique()
    else:
        rows = grad.flatten(1).any(1).nonzero().reshape(-1)
    return make_rows(rows, grad.index_select(0, rows), len(grad))


def call_on_rows(call: Call, op: Operator, ctx: Any) -> Call:
    """Return the function of an op on rows; `call` is its function on tensors."""
    if makes_rows(op):
        return _gradient_of_look_up(call)
    return ROW_OPS[op.type].on_rows(call, op, ctx)


def _gradient_of_look_up(call: Call) -> Call:
    def run(weight: Tensor, ids: Tensor, *rest: Any) -> Any:
        grad, *others = call(weight, ids, *rest)
        return (as_rows(grad, ids), *others)

    return run


# -- ops -------------------------------------------------------------------------------------------
def _values_of(call: Call, op: Operator, ctx: Any) -> Call:
    return lambda rows, *rest: with_values(rows, call(rows_of(rows)[1], *rest))


def _merged_values_of(call: Call, op: Operator, ctx: Any) -> Call:
    def run(rows: Tensor, *rest: Any) -> Tensor:
        rows = merged(rows)
        return with_values(rows, call(rows_of(rows)[1], *rest))

    return run


def _reduced(call: Call, op: Operator, ctx: Any) -> Call:
    return lambda rows: call(rows_of(rows)[1])


def _added(call: Call, op: Operator, ctx: Any) -> Call:
    return add_up


def _summed_over_workers(call: Call, op: Operator, ctx: Any) -> Call:
    settings = None if ctx.exchange is None else ctx.exchange.all_reduce.settings
    dtype = None if settings is None else settings.dtype
    ring = int(op.attr("ring_id"))
    return lambda rows: all_reduce_rows(rows, dtype=dtype, ring_id=ring)


def _changed_in_place(call: Call, op: Operator, ctx: Any) -> Call:
    def run(grads: list[Tensor], *rest: Any) -> Any:
        values = [rows_of(grad)[1] if grad.is_sparse else grad for grad in grads]
        _, *others = call(values, *rest)
        return (grads, *others)

    return run


def _factor(call: Call, op: Operator, ctx: Any) -> Call:
    return lambda grads: call([merge(grad)[1] if grad.is_sparse else grad for grad in grads])


def _itself(call: Call, op: Operator, ctx: Any) -> Call:
    return call


# -- conditions ------------------------------------------------------------------------------------
def _by_one_number(op: Operator, rows: set[str], block: Block) -> bool:
    factor = block.find_var(op.input("Y")[0])
    return op.input("X")[0] in rows and factor is not None and tuple(factor.shape) in ((), (1,))


def _only_rows(op: Operator, rows: set[str], block: Block) -> bool:
    return rows.issuperset(op.input("X"))


ROW_OPS: dict[str, RowOp] = {
    "sum": RowOp(_added, accepts=_only_rows),
    "elementwise_mul": RowOp(_values_of, accepts=_by_one_number),
    "scale": RowOp(_values_of, accepts=lambda op, rows, block: not op.attr("bias")),
    "cast": RowOp(_values_of),
    "square": RowOp(_merged_values_of),
    "merge_selected_rows": RowOp(_itself),
    "get_tensor_from_selected_rows": RowOp(_itself, keeps=False),
    "split_ids": RowOp(_itself),
    "split_selected_rows": RowOp(_itself),
    "clip": RowOp(_merged_values_of),
    "clip_by_norm": RowOp(_merged_values_of),
    "reduce_sum": RowOp(
        _reduced, keeps=False, accepts=lambda op, rows, block: bool(op.attr("reduce_all"))
    ),
    "clip_factor": RowOp(_factor, keeps=False),
    "check_finite_and_unscale": RowOp(_changed_in_place, keeps=False),
    "update_loss_scaling": RowOp(_changed_in_place, keeps=False),
    "c_allreduce_sum": RowOp(_summed_over_workers),
    **{kind: RowOp(_itself, keeps=False) for kind, rule in RULES.items() if rule.takes_rows},
}
"""Ops by type; update ops take rows directly."""
