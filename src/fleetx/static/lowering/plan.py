"""The plan of a step: its calls in order, and where gradients flow."""

from __future__ import annotations

from dataclasses import dataclass, field

from fleetx.static.graph.block import Block
from fleetx.static.graph.op_names import reads_of, writes_of
from fleetx.static.graph.operator import Operator, OpRole
from fleetx.static.lowering.backward_call import (
    BackwardCall,
    find_backward_calls,
    refuse_lost_inputs,
)
from fleetx.static.lowering.fusion import FusedOp, fuse_losses, fuse_neighbours, group_updates
from fleetx.static.lowering.lookups import concat_lookups, join_lookups
from fleetx.static.lowering.needed_ops import count_reads, is_persistable, needed_ops
from fleetx.static.lowering.row_flow import RowFlow, find_row_flow
from fleetx.static.lowering.segments import SegmentCall, find_segments
from fleetx.static.lowering.weight_decay import fold_weight_decay

# A list: one fused call.
Instruction = Operator | FusedOp | BackwardCall | SegmentCall | list[Operator]


@dataclass
class Plan:
    """The instructions of a step, and the gradient flow that the code generator needs."""

    sequence: list[Instruction] = field(default_factory=list)
    # forward op uid -> its (slot, index) inputs that a gradient flows into
    flows: dict[int, set[tuple[str, int]]] = field(default_factory=dict)
    leaves: set[str] = field(default_factory=set)  # differentiated, not computed by such an op
    # uid of a loop or branch -> variables whose values before it are differentiated
    saved: dict[int, set[str]] = field(default_factory=dict)
    ones: dict[str, Operator] = field(default_factory=dict)  # seeds that are ones
    rows: RowFlow = field(default_factory=RowFlow)  # the sparse gradients


def make_plan(block: Block, feeds: list[str], fetches: list[str], *, with_lod: bool) -> Plan:
    """Return the plan for running a block with these feeds and fetches.

    With variable-length values (`with_lod`) ops are not fused: each one tracks its offsets.
    """
    ops = needed_ops(block, set(feeds), fetches)
    persistable = {n for op in ops for n in writes_of(op) if is_persistable(block, n)}
    calls = find_backward_calls(ops, fetches, persistable)
    if calls is None:
        refuse_lost_inputs(ops)
        calls = []
    plan = Plan(ones=_constant_seeds(ops, calls, fetches), rows=find_row_flow(ops, calls, block))
    for call in calls:
        for uid, flow in call.flows.items():
            plan.flows.setdefault(uid, set()).update(flow)
    made = {n for op in ops if op.uid in plan.flows for n in op.output_arg_names}
    plan.leaves = {
        n for call in calls for n, g in call.results if g in call.before or n not in made
    }
    for call in calls:
        for name, grad in call.results:
            if grad in call.before:
                plan.saved.setdefault(call.before[grad].uid, set()).add(name)
    plan.sequence = _in_order(ops, calls, {op.uid for op in plan.ones.values()})
    if block.program.binding.gradient_exchange is not None:
        plan.sequence = _reduced_during_backward(plan.sequence)
    if not with_lod:
        plan.sequence = _joined(plan, block, calls, set(fetches), persistable)
    plan.sequence = find_segments(plan.sequence, calls)
    return plan


def _constant_seeds(
    ops: list[Operator], calls: list[BackwardCall], fetches: list[str]
) -> dict[str, Operator]:
    """Return the gradients of losses that are ones and that only a backward call reads."""
    seeds = {seed for call in calls for _, seed in call.roots}
    members = {uid for call in calls for uid in call.members}
    read = count_reads([op for op in ops if op.uid not in members], fetches)
    found = {}
    for op in ops:
        if op.type == "fill_constant" and op.attr("value") == 1.0 and not op.input_arg_names:
            name = op.output("Out")[0]
            if name in seeds and not read[name]:
                found[name] = op
    return found


def _in_order(
    ops: list[Operator], calls: list[BackwardCall], dropped: set[int]
) -> list[Instruction]:
    """Replace gradient ops by their backward calls.

    Ops of the learning rate schedule move after the backward pass, to the updates that use them.
    """
    members = {uid for call in calls for uid in call.members} | dropped
    starts = {call.first: call for call in calls}
    early_reads = {
        n for op in ops if not op.op_role & (OpRole.LRSched | OpRole.Optimize) for n in reads_of(op)
    }
    first: list[Instruction] = []
    late: list[Instruction] = []
    for i, op in enumerate(ops):
        if i in starts:
            first.append(starts[i])
        if op.uid in members:
            continue
        is_schedule = op.op_role & OpRole.LRSched and not early_reads & set(writes_of(op))
        if calls and (is_schedule or i > calls[-1].first):
            late.append(op)
        else:
            first.append(op)
    return first + late


def _reduced_during_backward(sequence: list[Instruction]) -> list[Instruction]:
    """Make a backward call all-reduce its results, instead of the ops that follow it.

    This requires that all gradients are summed immediately after the call, so that every worker
    sends the same buckets.
    """
    calls = [x for x in sequence if isinstance(x, BackwardCall)]
    if len(calls) != 1:
        return sequence
    results = {grad for _, grad in calls[0].results}
    touched: set[str] = set()
    summed: list[Operator] = []
    for item in sequence[sequence.index(calls[0]) + 1 :]:
        if not isinstance(item, Operator):
            return sequence
        names = set(reads_of(item)) | set(writes_of(item))
        is_sum = item.type == "c_allreduce_sum" and item.input("X") == item.output("Out")
        if is_sum and names <= results and not names & touched:
            summed.append(item)
        touched |= names
    if {n for op in summed for n in op.output("Out")} != results:
        return sequence
    calls[0].reduced = True
    return [x for x in sequence if not any(x is op for op in summed)]


def _joined(
    plan: Plan, block: Block, calls: list[BackwardCall], fetches: set[str], persistable: set[str]
) -> list[Instruction]:
    """Return the sequence with neighbours fused, and look-ups and updates grouped."""
    results = {n for call in calls for n, _ in call.results}
    roots = {n for call in calls for n, _ in call.roots}
    keep = fetches | persistable | results | roots
    sequence = fuse_neighbours(plan.sequence, block, keep, plan.flows)
    sequence = fuse_losses(sequence, block, keep, roots - results - persistable, plan.flows)
    again = {uid for call in calls for uid in call.segments}
    sequence = concat_lookups(sequence, block, keep, plan.flows, again)
    sequence = join_lookups(sequence, plan.flows, again)
    last = max((i for i, x in enumerate(sequence) if isinstance(x, BackwardCall)), default=-1)
    updates = fold_weight_decay(sequence[last + 1 :], keep, plan.rows.inputs)
    return sequence[: last + 1] + group_updates(updates, plan.rows.ops)
