"""Ids of later look-ups in a table, computed before the first one.

The rows of a table are fetched once per step, before the first look-up. If ops between the two
compute the ids of a later look-up (a reshape of fed words, a concat with negatives), they move
before the first look-up. Ids that depend on rows of the same table cannot move.
"""

from __future__ import annotations

from collections.abc import Sequence

from fleetx.static.graph.op_names import reads_of, writes_of
from fleetx.static.graph.operator import Operator


def ops_to_move(ops: Sequence[Operator], lookups: Sequence[Operator]) -> list[int] | None:
    """Return the indices of ops that compute ids after the first look-up; None if one cannot move.

    Args:
        ops: the ops of a block, the backward pass may be among them.
        lookups: the look-ups in one table.
    """
    mine = {op.uid for op in lookups}
    places = [i for i, op in enumerate(ops) if op.uid in mine]
    first, last = places[0], places[-1]
    wanted = {name for i in places for name in ops[i].input("Ids")}
    moved: list[int] = []
    for i in range(last, first - 1, -1):
        if not wanted & set(writes_of(ops[i])):
            continue
        if ops[i].uid in mine:  # ids that depend on rows of this table
            return None
        moved.append(i)
        wanted.update(reads_of(ops[i]))
    moved.reverse()
    # What stays must not see a value that a moved op replaces.
    written = {name for i in moved for name in writes_of(ops[i])}
    for i in range(first, moved[-1] if moved else first):
        if i not in moved and written & {*reads_of(ops[i]), *writes_of(ops[i])}:
            return None
    return moved


def move_to_front(ops: list[Operator], lookups: Sequence[Operator]) -> list[Operator]:
    """Return the ops with those that compute ids before the first look-up of their table."""
    moved = ops_to_move(ops, lookups)
    if not moved:
        return ops
    mine = {op.uid for op in lookups}
    first = next(i for i, op in enumerate(ops) if op.uid in mine)
    away = set(moved)
    rest = [op for i, op in enumerate(ops) if i >= first and i not in away]
    return [*ops[:first], *(ops[i] for i in moved), *rest]
