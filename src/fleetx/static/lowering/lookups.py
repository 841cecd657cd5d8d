"""Merge a step's look-ups in one table into one call.

A model with 26 slots looks up one table 26 times. Each look-up would have a gradient as large as
the table, and autograd would add them; merged look-ups have one gradient. A look-up moves up to the
first one in its table, unless its inputs are computed, or its result is used, in between. Look-ups
of single ids that `concat` joins need not be split again.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, field
from typing import Any

import torch

from fleetx.static.graph.block import Block
from fleetx.static.graph.op_names import reads_of, writes_of
from fleetx.static.graph.op_registry import get_op
from fleetx.static.graph.operator import Operator
from fleetx.static.lowering.backward_call import BackwardCall
from fleetx.static.lowering.fusion import FusedOp, ops_of, replaced
from fleetx.static.lowering.needed_ops import count_reads, count_writes, is_written_between

_LOOKUPS = frozenset({"lookup_table", "lookup_table_v2"})
_ATTRS = ("padding_idx", "is_sparse", "remote_prefetch")


@dataclass
class _Group:
    ops: list[Operator]
    read: set[str] = field(default_factory=set)  # by others, since the first look-up
    written: set[str] = field(default_factory=set)

    def takes(self, op: Operator) -> bool:
        """Return whether an op may run at the position of the group."""
        outs = set(writes_of(op))
        return not (set(reads_of(op)) & self.written or outs & (self.read | self.written))


def join_lookups(sequence: list[Any], flows: Container[int], alone: Container[int]) -> list[Any]:
    """Collect look-ups in one table into lists for one call; `alone` are the uids of exceptions."""
    result: list[Any] = []
    groups: dict[Any, _Group] = {}
    for item in sequence:
        if isinstance(item, BackwardCall):
            groups.clear()
            result.append(item)
            continue
        ops = ops_of(item)
        joins = isinstance(item, Operator) and item.type in _LOOKUPS and item.uid not in alone
        key = _key(item, flows) if joins else None
        mine = groups.get(key) if joins else None
        if mine is None or not mine.takes(item):
            result.append(item)
            if joins:
                mine = groups[key] = _Group([item])
                result[-1] = mine
        else:
            mine.ops.append(item)
        for group in groups.values():
            if group is not mine:
                group.read.update(n for op in ops for n in reads_of(op))
                group.written.update(n for op in ops for n in writes_of(op))
    return [_instruction(item) if isinstance(item, _Group) else item for item in result]


def _key(op: Operator, flows: Container[int]) -> Any:
    return (op.type, op.input("W")[0], op.uid in flows, *(op.attr(name) for name in _ATTRS))


def _instruction(group: _Group) -> Any:
    return group.ops if len(group.ops) > 1 else group.ops[0]


# -- look-ups side by side ------------------------------------------------------------------------
@dataclass
class _Column:
    """One input of a concat that is a look-up, perhaps reshaped."""

    lookup: Operator
    ops: list[Operator]


def concat_lookups(
    sequence: list[Any],
    block: Block,
    keep: Container[str],
    flows: Container[int],
    alone: Container[int],
) -> list[Any]:
    """Replace look-ups of single ids in one table that `concat` joins by one look-up.

    Its result has the memory layout of the concatenation. Nothing else may read the parts.
    """
    ops = [x for x in sequence if isinstance(x, Operator)]
    every = [op for x in sequence for op in ops_of(x)]
    reads, writes = count_reads(every, []), count_writes(every)
    made_by = {name: op for op in ops for name in op.output_arg_names}
    gone: set[int] = set()
    joined: dict[int, FusedOp] = {}
    for op in ops:
        if op.type != "concat" or op.attr("axis") not in (1, -1) or op.input("AxisTensor"):
            continue
        columns: dict[int, _Column] = {}
        for place, name in enumerate(op.input("X")):
            column = _column(name, block, made_by, alone)
            if column is None:
                continue
            free = not any(
                reads[n] > (n in _between(column, name)) or writes[n] != 1 or n in keep
                for each in column.ops
                for n in each.output_arg_names
            )
            same_flow = all((each.uid in flows) == (op.uid in flows) for each in column.ops)
            sources = set(column.lookup.input_arg_names)
            changes = is_written_between(every, column.lookup, op, sources)
            if free and same_flow and not changes:
                columns[place] = column
        keys = [_key(column.lookup, flows)[1:] for column in columns.values()]
        if len(keys) > 1 and len(set(keys)) == 1:
            joined[op.uid] = _side_by_side(op, columns)
            gone.update(each.uid for column in columns.values() for each in column.ops)
    return replaced(sequence, joined, gone)


def _column(
    name: str, block: Block, made_by: dict[str, Operator], alone: Container[int]
) -> _Column | None:
    """Return the look-up of single ids that computes an input; None if there is none."""
    op = made_by.get(name)
    chain = []
    if op is not None and op.type in ("reshape2", "squeeze2") and len(op.input_arg_names) == 1:
        chain.append(op)
        op = made_by.get(op.input("X")[0])
    if op is None or op.type not in _LOOKUPS or op.uid in alone:
        return None
    table, ids, out = (block.find_var(n) for n in (op.input("W")[0], op.input("Ids")[0], name))
    if table is None or ids is None or out is None:
        return None
    is_row = len(out.shape) == 2 and len(table.shape) == 2 and out.shape[1] == table.shape[1]
    if not is_row or len(ids.shape) != 2 or ids.shape[1] != 1:
        return None
    return _Column(op, [op, *chain])


def _between(column: _Column, name: str) -> set[str]:
    """Return the values between the ops of a column; each has one reader."""
    return {name, column.lookup.output("Out")[0]}


def _side_by_side(concat: Operator, columns: dict[int, _Column]) -> FusedOp:
    lookups = [column.lookup for column in columns.values()]
    attrs = {name: lookups[0].attr(name) for name in _ATTRS}
    look_up = get_op("lookup_table_v2").fn
    order, count = _runs(concat, columns), len(lookups)

    def fn(weight: torch.Tensor, *values: torch.Tensor) -> torch.Tensor:
        rows = look_up(weight, torch.cat(values[:count], 1), **attrs)
        if order is None:
            return rows.flatten(1)
        parts = [rows[:, first:last].flatten(1) for first, last in order[0]]
        pool = [*parts, *values[count:]]
        return torch.cat([pool[i] for i in order[1]], 1)

    return FusedOp(
        [op for column in columns.values() for op in column.ops] + [concat],
        fn,
        [
            (lookups[0], "W", 0),
            *((op, "Ids", 0) for op in lookups),
            *((concat, "X", i) for i in range(len(concat.input("X"))) if i not in columns),
        ],
        concat.output("Out")[0],
    )


def _runs(
    concat: Operator, columns: dict[int, _Column]
) -> tuple[list[tuple[int, int]], list[int]] | None:
    """Return runs of neighbouring look-ups, and the order of runs and other inputs.

    The order counts the runs first, then the others. None: there are look-ups only.
    """
    runs: list[tuple[int, int]] = []
    order: list[tuple[bool, int]] = []  # (is a run, its number)
    seen = other = 0
    for place in range(len(concat.input("X"))):
        if place not in columns:
            order.append((False, other))
            other += 1
            continue
        if order and order[-1][0]:
            runs[-1] = (runs[-1][0], seen + 1)
        else:
            order.append((True, len(runs)))
            runs.append((seen, seen + 1))
        seen += 1
    if not other:
        return None
    return runs, [number if is_run else len(runs) + number for is_run, number in order]
