"""Fusion of ops that torch computes in one call.

`fuse_neighbours` finds a producer whose only reader is the next link of a known chain (mul +
elementwise_add is addmm, softmax + cross_entropy is one numerically stable loss). `group_updates`
collects ops of one type that do the same to different variables (the update ops of all parameters)
into one call over lists.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F

from fleetx.static.graph.block import Block
from fleetx.static.graph.op_names import reads_of, sub_blocks, writes_of
from fleetx.static.graph.op_registry import get_op
from fleetx.static.graph.operator import Operator
from fleetx.static.lowering.needed_ops import count_reads, count_writes, is_written_between


@dataclass
class FusedOp:
    """Several ops as one call: positional inputs by name, one output."""

    ops: list[Operator]
    fn: Callable[..., torch.Tensor]
    sources: list[tuple[Operator, str, int]]  # the op, slot and index of each input
    output: str
    is_loss: bool = False  # `fn` returns a 0-d tensor that autograd starts from

    @property
    def inputs(self) -> list[str]:
        """The names of the inputs."""
        return [op.input(slot)[index] for op, slot, index in self.sources]

    def flows(self, flows: dict[int, set[tuple[str, int]]]) -> set[int]:
        """Return the positions of the inputs that gradients flow into."""
        return {
            i
            for i, (op, slot, index) in enumerate(self.sources)
            if (slot, index) in flows.get(op.uid, set())
        }


def ops_of(item: Any) -> list[Operator]:
    """Return the ops of one instruction; none for a backward pass or a segment."""
    if isinstance(item, Operator):
        return [item]
    if isinstance(item, FusedOp):
        return item.ops
    return item if isinstance(item, list) else []


def _rank(block: Block, name: str) -> int:
    var = block.find_var(name)
    return -1 if var is None else len(var.shape)


def _linear(a: Operator, b: Operator, block: Block) -> FusedOp | None:
    """Return mul + elementwise_add(bias) as torch.addmm."""
    x, w, bias = a.input("X")[0], a.input("Y")[0], b.input("Y")[0]
    if b.input("X") != a.output("Out") or _rank(block, bias) != 1 or _rank(block, w) != 2:
        return None
    if a.type == "mul":
        if a.attr("x_num_col_dims") != 1 or a.attr("y_num_col_dims") != 1:
            return None
    elif a.attr("trans_x") or a.attr("trans_y"):
        return None
    if b.attr("axis") not in (-1, 1) or _rank(block, x) != 2:
        return None
    return FusedOp(
        [a, b],
        lambda x, w, bias: torch.addmm(bias, x, w),
        [(a, "X", 0), (a, "Y", 0), (b, "Y", 0)],
        b.output("Out")[0],
    )


def _conv_bias(a: Operator, b: Operator, block: Block) -> FusedOp | None:
    """Return conv2d + elementwise_add(bias over channels) as one convolution."""
    bias = b.input("Y")[0]
    if b.input("X") != a.output("Output") or _rank(block, bias) != 1 or b.attr("axis") != 1:
        return None
    if a.attr("data_format") not in ("NCHW", "AnyLayout") or a.input("Bias"):
        return None
    algorithm, paddings = a.attr("padding_algorithm"), list(a.attr("paddings"))
    if algorithm != "EXPLICIT" or len(paddings) != 2:
        return None
    strides, dilations = list(a.attr("strides")), list(a.attr("dilations"))
    groups = a.attr("groups")

    def fn(x: torch.Tensor, w: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        return torch.conv2d(x, w, bias, strides, paddings, dilations, groups)

    sources = [(a, "Input", 0), (a, "Filter", 0), (b, "Y", 0)]
    return FusedOp([a, b], fn, sources, b.output("Out")[0])


def _softmax_loss(a: Operator, b: Operator, block: Block) -> FusedOp | None:
    """Return softmax + cross_entropy with class labels as one numerically stable loss."""
    if b.input("X") != a.output("Out") or _rank(block, a.input("X")[0]) != 2:
        return None
    if a.attr("axis") not in (-1, 1):
        return None
    if b.has_attr("soft_label") and b.attr("soft_label"):
        return None
    ignore = b.attr("ignore_index")

    def fn(logits: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(
            logits, label.reshape(-1), ignore_index=ignore, reduction="none"
        ).unsqueeze(1)

    return FusedOp([a, b], fn, [(a, "X", 0), (b, "Label", 0)], b.output("Y")[0])


_RULES: dict[tuple[str, str], Callable[[Operator, Operator, Block], FusedOp | None]] = {
    ("mul", "elementwise_add"): _linear,
    ("matmul_v2", "elementwise_add"): _linear,
    ("conv2d", "elementwise_add"): _conv_bias,
    ("softmax", "cross_entropy2"): _softmax_loss,
    ("softmax", "cross_entropy"): _softmax_loss,
}


def _main_output(op: Operator) -> str | None:
    for slot in ("Out", "Output", "Y"):
        if op.output(slot):
            return op.output(slot)[0]
    return None


def fuse_neighbours(
    sequence: list[Any], block: Block, keep: set[str], flows: dict[int, set[tuple[str, int]]]
) -> list[Any]:
    """Replace known pairs by one call if nothing else reads the value between them.

    `keep` are names whose values are needed elsewhere; `flows` has the forward ops with gradient
    ops: both ops of a pair must be in it, or neither.
    """
    ops = [x for x in sequence if isinstance(x, Operator)]
    reads, writes = count_reads(ops, []), count_writes(ops)
    made_by = {_main_output(op): op for op in ops if _main_output(op)}
    fused: dict[int, FusedOp] = {}
    gone: set[int] = set()
    for b in ops:
        source = b.input("X")
        a = made_by.get(source[0]) if source else None
        if a is None or a is b or a.uid in gone or a.uid in fused:
            continue
        rule = _RULES.get((a.type, b.type))
        between = source[0]
        if rule is None or between in keep or reads[between] != 1 or writes[between] != 1:
            continue
        if (a.uid in flows) != (b.uid in flows):
            continue
        spare = [
            n for o in (a, b) for n in o.output_arg_names if n not in (between, _main_output(b))
        ]
        if any(reads[n] or n in keep for n in spare):
            continue
        if is_written_between(ops, a, b, set(a.input_arg_names)):
            continue
        item = rule(a, b, block)
        if item is not None:
            fused[b.uid] = item
            gone.add(a.uid)
    return replaced(sequence, fused, gone)


def replaced(sequence: list[Any], fused: dict[int, FusedOp], gone: set[int]) -> list[Any]:
    """Return the sequence with fused calls in place of ops, by uid, and without those `gone`."""
    return [
        fused.get(x.uid, x) if isinstance(x, Operator) else x
        for x in sequence
        if not (isinstance(x, Operator) and x.uid in gone)
    ]


def fuse_losses(
    sequence: list[Any],
    block: Block,
    keep: set[str],
    losses: set[str],
    flows: dict[int, set[tuple[str, int]]],
) -> list[Any]:
    """Join softmax + cross_entropy with the mean that follows, if the mean is differentiated."""
    ops = [op for x in sequence for op in ops_of(x)]
    reads = count_reads(ops, [])
    made = {x.output: x for x in sequence if isinstance(x, FusedOp)}
    result = list(sequence)
    for i, op in enumerate(sequence):
        if not isinstance(op, Operator) or op.type != "mean" or op.uid not in flows:
            continue
        item, loss = made.get(op.input("X")[0]), op.output("Out")[0]
        if item is None or item.ops[0].type != "softmax" or loss not in losses:
            continue
        # Other ops with gradients would need the loss in the graph, not only its value.
        used = any(loss in o.input_arg_names and o.uid in flows for o in ops)
        if item.output in keep or reads[item.output] != 1 or used:
            continue
        ignore = item.ops[1].attr("ignore_index")

        def mean_loss(
            logits: torch.Tensor, label: torch.Tensor, ignore: int = ignore
        ) -> torch.Tensor:
            # The mean counts ignored rows too, so it is not cross_entropy's own mean.
            total = F.cross_entropy(logits, label.reshape(-1), ignore_index=ignore, reduction="sum")
            return total / logits.shape[0]

        result[i] = FusedOp([*item.ops, op], mean_loss, item.sources, loss, is_loss=True)
        result[result.index(item)] = None
    return [x for x in result if x is not None]


def _group_key(op: Operator) -> Any:
    """Return what must be equal for ops to share a fused call, or None if they cannot."""
    op_def = get_op(op.type)
    if op_def.fused is None or (op_def.fused_if is not None and not op_def.fused_if(op)):
        return None
    attrs = tuple(sorted((k, str(v)) for k, v in op.attrs.items() if k in op_def.names))
    slots = tuple(sorted((s, len(n)) for s, n in op.inputs.items()))
    shared = tuple(tuple(op.input(slot)) for slot in ("LearningRate", "W"))
    return (op.type, attrs, slots, shared)


def group_updates(sequence: list[Any], alone: Container[int] = ()) -> list[Any]:
    """Collect ops of one kind that do not depend on each other into lists for one fused call.

    `alone` are the uids of ops that are called separately.
    """
    if not all(isinstance(x, Operator) for x in sequence):
        return sequence
    pending: list[Operator] = list(sequence)
    result: list[Any] = []
    while pending:
        head = pending.pop(0)
        key = None if head.uid in alone else _group_key(head)
        if key is None or sub_blocks(head):
            result.append(head)
            continue
        group = [head]
        rest: list[Operator] = []
        # Names that skipped ops read and write: a later op may only move before them if it is
        # independent.
        blocked_reads: set[str] = set()
        blocked_writes: set[str] = set()
        done: set[str] = set(writes_of(head))
        for op in pending:
            ins, outs = set(reads_of(op)), set(writes_of(op))
            free = not (ins & blocked_writes or outs & blocked_writes or outs & blocked_reads)
            same = op.uid not in alone and _group_key(op) == key
            if free and same and not ((ins | outs) & done):
                group.append(op)
                done |= outs
            else:
                rest.append(op)
                blocked_reads |= ins
                blocked_writes |= outs
        result.append(group if len(group) > 1 else head)
        pending = rest
    return result
