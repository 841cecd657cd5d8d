"""The ops of a program that the given fetches need, and the reads and writes of variables."""

from __future__ import annotations

from collections import Counter

from fleetx.static.graph.block import Block
from fleetx.static.graph.op_names import reads_of, sub_blocks, writes_of
from fleetx.static.graph.op_registry import EMPTY_NAME, get_op
from fleetx.static.graph.operator import Operator

# Ops that only mark where data enters and leaves; the executor feeds and fetches.
MARKERS = frozenset({"feed", "fetch", "read", "create_py_reader", "create_double_buffer_reader"})


def is_persistable(block: Block, name: str) -> bool:
    """Return whether a variable keeps its value between runs."""
    var = block.find_var(name)
    return var is not None and var.persistable


def has_side_effect(op: Operator) -> bool:
    """Return whether an op, or one in its inner blocks, has side effects."""
    if get_op(op.type).side_effect:
        return True
    if op.forward_uid is not None:
        return False  # the gradient of a branch or loop only differentiates its block
    return any(has_side_effect(inner) for block in sub_blocks(op) for inner in block.ops)


def needed_ops(block: Block, feeds: set[str], fetches: list[str]) -> list[Operator]:
    """Return the ops that a fetch, a persistable variable or a side effect depends on, in order."""
    wanted = set(fetches)
    kept = []
    for op in reversed(block.ops):
        if op.type in MARKERS:
            continue
        # The gradient of a branch or loop does not write what its block writes.
        writes = writes_of(op) if op.forward_uid is None else op.output_arg_names
        keeps = any(is_persistable(block, n) for n in writes)
        replaced = not keeps and bool(writes) and all(n in feeds or n == EMPTY_NAME for n in writes)
        if replaced and feeds.isdisjoint({*writes} & {*reads_of(op)}):
            continue  # the feed replaces this op's result; an op in place changes the feed
        needed = keeps or any(n in wanted for n in writes) or has_side_effect(op)
        if needed:
            kept.append(op)
            wanted.update(reads_of(op))
    return kept[::-1]


def changed_in_place(block: Block) -> set[str]:
    """Return the variables whose memory the functions of the block's ops write into."""
    return {
        name
        for op in block.ops
        for out, source in get_op(op.type).inplace.items()
        if op.output(out) == op.input(source)
        for name in op.input(source)
    }


def is_written_between(
    ops: list[Operator], first: Operator, last: Operator, names: set[str]
) -> bool:
    """Return whether an op between two others writes one of the names."""
    inside = False
    for op in ops:
        if op is last:
            return False
        if inside and names & set(writes_of(op)):
            return True
        inside = inside or op is first
    return False


def count_reads(ops: list[Operator], fetches: list[str]) -> Counter[str]:
    """Return how often each variable is read, fetches included."""
    counts: Counter[str] = Counter(fetches)
    for op in ops:
        counts.update(reads_of(op))
    return counts


def count_writes(ops: list[Operator]) -> Counter[str]:
    """Return how often each variable is written."""
    counts: Counter[str] = Counter()
    for op in ops:
        counts.update(n for n in writes_of(op) if n != EMPTY_NAME)
    return counts
