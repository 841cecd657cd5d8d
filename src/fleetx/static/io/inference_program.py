"""Conversion of a training program to an inference program for given feeds and targets.

The feeds and targets become `feed` and `fetch` ops, which mark the inputs and outputs of a saved
model. The program that is passed in is never changed.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence

from fleetx.static.graph.block import Block
from fleetx.static.graph.dtypes import VarType
from fleetx.static.graph.op_names import reads_of, sub_blocks
from fleetx.static.graph.operator import Operator
from fleetx.static.graph.program import Program
from fleetx.static.graph.variable import Variable

_MARKERS = ("feed", "fetch")


def _rename_target(block: Block, var: Variable, index: int) -> Variable:
    """Copy a target to a variable named like the outputs of saved models."""
    number = 0
    while block.has_var(name := f"save_infer_model/scale_{index}.tmp_{number}"):
        number += 1
    out = block.create_var(name=name, dtype=var.dtype, shape=var.shape, lod_level=var.lod_level)
    attrs = {"scale": 1.0, "bias": 0.0, "bias_after_scale": True}
    block.append_op(type="scale", inputs={"X": [var]}, outputs={"Out": [out]}, attrs=attrs)
    return out


def _check_feeds(program: Program, feeds: Sequence[str], targets: Sequence[str]) -> None:
    root = program.global_block()
    used = {name for op in root.ops for name in reads_of(op)} | set(targets)
    for name in feeds:
        if not root.has_var(name) or name not in used:
            raise ValueError(
                f"the targets ({', '.join(targets)}) do not depend on feed {name!r}; remove it, or "
                "check its name."
            )


def _drop_dead_blocks(program: Program) -> None:
    """Remove the bodies of control flow that was pruned, and the variables that only they used."""
    alive, found = {0}, [program.global_block()]
    while found:
        for op in found.pop().ops:
            for block in sub_blocks(op):
                if block.idx not in alive:
                    alive.add(block.idx)
                    found.append(block)
    if len(alive) == len(program.blocks):
        return
    kept = [block for block in program.blocks if block.idx in alive]
    numbers = {block.idx: number for number, block in enumerate(kept)}
    for block in kept:
        block.parent_idx = numbers.get(block.parent_idx, min(block.parent_idx, 0))
        block.forward_block_idx = numbers.get(block.forward_block_idx, -1)
    for number, block in enumerate(kept):
        block.idx = number
    program.blocks = kept
    used = {n for b in kept for op in b.ops for n in op.input_arg_names + op.output_arg_names}
    root = program.global_block()
    for name in [n for n, var in root.vars.items() if n not in used and var.persistable]:
        del root.vars[name]


def inference_program(
    program: Program, feeds: Sequence[str], targets: Sequence[Variable], *, prune: bool = True
) -> Program:
    """Return a copy of ``program`` that computes ``targets`` from ``feeds``, in test mode."""
    program = program.clone()
    root = program.global_block()
    root.ops = [op for op in root.ops if op.type not in _MARKERS]
    for op in root.ops:
        if op.has_attr("op_device"):
            op.set_attr("op_device", "")
    renamed = [
        var if var.dtype == VarType.BOOL else _rename_target(root, root.var(var.name), i)
        for i, var in enumerate(targets)
    ]
    names = [var.name for var in renamed]
    if prune:
        program = program.prune_with_input(list(feeds), names)
        _drop_dead_blocks(program)
        _check_feeds(program, feeds, names)
    program = program._inference_optimize(prune_read_op=True)
    prepend_feed_ops(program, feeds)
    append_fetch_ops(program, names)
    return program


def warn_of_auc(program: Program) -> None:
    """Warn if a program to save for inference has metrics with a state."""
    if any(op.type == "auc" for op in program.global_block().ops):
        warnings.warn(
            "the model has auc ops: reset their states before saving it for inference.",
            stacklevel=3,
        )


def prepend_feed_ops(
    inference_program: Program, feed_target_names: Sequence[str], feed_holder_name: str = "feed"
) -> None:
    """Prepend a `feed` op for every input of a saved model."""
    if not feed_target_names:
        return
    block = inference_program.global_block()
    block.create_var(name=feed_holder_name, type=VarType.FEED_MINIBATCH, persistable=True)
    for column, name in enumerate(feed_target_names):
        if not block.has_var(name):
            raise ValueError(
                f"feeded_var_names[{column}] is {name!r}, which is not in the pruned program; "
                "remove it, or check its name."
            )
        slots = {"inputs": {"X": [feed_holder_name]}, "outputs": {"Out": [name]}}
        block.prepend_op(type="feed", attrs={"col": column}, **slots)


def append_fetch_ops(
    inference_program: Program, fetch_target_names: Sequence[str], fetch_holder_name: str = "fetch"
) -> None:
    """Append a `fetch` op to a program for every output of a saved model."""
    block = inference_program.global_block()
    block.create_var(name=fetch_holder_name, type=VarType.FETCH_LIST, persistable=True)
    for column, name in enumerate(fetch_target_names):
        slots = {"inputs": {"X": [name]}, "outputs": {"Out": [fetch_holder_name]}}
        block.append_op(type="fetch", attrs={"col": column}, **slots)


def _marked(program: Program, kind: str) -> list[Operator]:
    ops = [op for op in program.global_block().ops if op.type == kind]
    return sorted(ops, key=lambda op: op.attr("col"))


def feed_names_of(program: Program) -> list[str]:
    """Return the names of the inputs of an inference program, in order."""
    return [op.output("Out")[0] for op in _marked(program, "feed")]


def fetch_names_of(program: Program) -> list[str]:
    """Return the names of the outputs of an inference program, in order."""
    return [op.input("X")[0] for op in _marked(program, "fetch")]


def describe(program: Program) -> list[object]:
    """Return ``[program, feed names, fetch variables]``, the result of loading a model."""
    block = program.global_block()
    return [program, feed_names_of(program), [block.var(n) for n in fetch_names_of(program)]]
