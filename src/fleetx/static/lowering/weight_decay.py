"""Folding L2 decay into update ops.

A regularizer appends `scale(parameter)` and `sum` into the gradient before the update op. If
nothing else reads the decayed gradient, the update op adds the decay in its single pass over
memory. The decay of a sparse gradient is not folded: their sum is dense.
"""

from __future__ import annotations

import copy
from collections.abc import Container
from typing import Any

from fleetx.static.graph.op_names import reads_of, sub_blocks, writes_of
from fleetx.static.graph.op_registry import get_op
from fleetx.static.graph.operator import Operator


class _Use:
    """The positions at which names are read and written in a sequence of ops."""

    def __init__(self, ops: list[Operator]) -> None:
        self.reads: dict[str, list[int]] = {}
        self.writes: dict[str, list[int]] = {}
        for i, op in enumerate(ops):
            for name in reads_of(op):
                self.reads.setdefault(name, []).append(i)
            for name in writes_of(op):
                self.writes.setdefault(name, []).append(i)

    def only_read(self, name: str, after: int) -> int | None:
        """Return the position that reads a value written at `after`, if it is the only one."""
        later = [i for i in self.reads.get(name, ()) if i > after]
        return later[0] if len(later) == 1 else None

    def written_between(self, name: str, start: int, end: int) -> bool:
        return any(start < i < end for i in self.writes.get(name, ()))


def _decay(ops: list[Operator], use: _Use, at: int, keep: set[str]) -> tuple[int, int] | None:
    """Return the positions of the sum and the update that follow the scale op at `at`, if any."""
    scale = ops[at]
    if scale.type != "scale" or scale.attr("bias") != 0.0 or scale.input("ScaleTensor"):
        return None
    param, decay = scale.input("X")[0], scale.output("Out")[0]
    where = use.only_read(decay, at)
    if where is None or decay in keep or decay == param:
        return None
    total = ops[where]
    if total.type != "sum" or len(total.input("X")) != 2 or total.input("X")[1] != decay:
        return None
    grad = total.input("X")[0]
    if total.output("Out") != [grad] or grad in keep:
        return None
    end = use.only_read(grad, where)
    if end is None or use.written_between(grad, where, end) or grad == decay:
        return None
    update = ops[end]
    if update.input("Grad") != [grad] or update.input("Param") != [param]:
        return None
    if "regularization_coeff" not in get_op(update.type).names:
        return None
    if update.attrs.get("regularization_coeff") or use.written_between(param, at, end):
        return None
    return where, end


def fold_weight_decay(sequence: list[Any], keep: set[str], alone: Container[int] = ()) -> list[Any]:
    """Return the ops with decay folded into updates; names in `keep` are needed by others.

    `alone` are the uids of sums that are not folded.
    """
    ops = [x for x in sequence if isinstance(x, Operator)]
    if len(ops) < len(sequence) or any(sub_blocks(op) for op in ops):
        return sequence
    use = _Use(ops)
    gone: set[int] = set()
    folded: dict[int, Operator] = {}
    for at, op in enumerate(ops):
        found = _decay(ops, use, at, keep)
        if found is None:
            continue
        total, end = found
        if ops[total].uid in alone:
            continue
        gone |= {at, total}
        update = copy.copy(ops[end])
        update.attrs = {
            **update.attrs,
            "regularization_method": "l2_decay",
            "regularization_coeff": float(op.attr("scale")),
        }
        folded[end] = update
    return [folded.get(i, op) for i, op in enumerate(ops) if i not in gone]
