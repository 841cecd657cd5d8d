"""The sparse gradients of a step.

A table that is looked up with `is_sparse` has a gradient of the rows in use
(`kernels/row_gradients.py`). It stays sparse through the ops of `row_ops.py`, which compute on
rows; any other op, and a fetch, reads it as a dense tensor.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from fleetx.static.graph.block import Block
from fleetx.static.graph.op_names import reads_of, writes_of
from fleetx.static.graph.op_registry import EMPTY_NAME
from fleetx.static.graph.operator import Operator
from fleetx.static.lowering.backward_call import BackwardCall
from fleetx.static.lowering.needed_ops import count_writes, is_persistable
from fleetx.static.lowering.row_ops import ROW_OPS, makes_rows

_LOOKUPS = frozenset({"lookup_table", "lookup_table_v2"})


@dataclass
class RowFlow:
    """The sparse gradients, and the ops that compute on them."""

    # gradient that a backward call computes -> the ids of its rows; none if they are not known
    results: dict[str, list[str]] = field(default_factory=dict)
    inputs: dict[int, set[str]] = field(default_factory=dict)  # op uid -> its sparse inputs
    ops: set[int] = field(default_factory=set)  # uids of the ops that take or return rows
    at_end: set[str] = field(default_factory=set)  # variables that hold rows after the last op


def find_row_flow(ops: list[Operator], calls: list[BackwardCall], block: Block) -> RowFlow:
    """Trace sparse gradients through the ops of a step."""
    flow = RowFlow()
    starts = {call.first: call for call in calls}
    members = {uid for call in calls for uid in call.members}
    rows: set[str] = set()
    for i, op in enumerate(ops):
        if i in starts:
            found = _results(starts[i], ops, block)
            flow.results.update(found)
            rows.update(found)
        if op.uid not in members:
            rows = _through(op, rows, block, flow)
    flow.at_end = rows
    return flow


def _through(op: Operator, rows: set[str], block: Block, flow: RowFlow) -> set[str]:
    """Return the sparse names after an op; record how the op takes them."""
    given, writes = rows.intersection(reads_of(op)), set(writes_of(op))
    if given:
        flow.inputs[op.uid] = given
    row_op = ROW_OPS.get(op.type)
    makes = makes_rows(op)
    if not makes and (row_op is None or not given or not row_op.accepts(op, given, block)):
        return rows - writes
    if makes or (row_op is not None and row_op.keeps):
        if any(is_persistable(block, name) for name in writes):
            return rows - writes  # the scope holds dense tensors
        flow.ops.add(op.uid)
        return rows | (writes - {EMPTY_NAME})
    flow.ops.add(op.uid)
    return (rows - writes) | (given & writes)  # the latter are changed in place


def _results(call: BackwardCall, ops: list[Operator], block: Block) -> dict[str, list[str]]:
    """Return the sparse results: gradients of tables that are only looked up sparsely."""
    users: dict[str, list[Operator]] = {}
    mixed: set[str] = set()
    made: set[str] = set()
    for op in ops:
        if op.uid not in call.flows:
            continue
        made.update(op.output_arg_names)
        for slot, index in call.flows[op.uid]:
            name = op.input(slot)[index]
            if op.type in _LOOKUPS and slot == "W" and op.attr("is_sparse"):
                users.setdefault(name, []).append(op)
            else:
                mixed.add(name)
    writes = count_writes(ops)
    found = {}
    for name, grad in call.results:
        if name in users and name not in mixed | made and not is_persistable(block, grad):
            ids = sorted({op.input("Ids")[0] for op in users[name]})
            found[grad] = ids if all(writes[each] < 2 for each in ids) else []
    return found
