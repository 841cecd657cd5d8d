"""Finds the forward op of each gradient op in a program that was read from a file.

In memory a gradient op knows its forward op by `forward_uid`; files do not say it. Also, a gradient
op of Paddle lists only those forward variables that its kernel reads (`relu_grad` has no X), while
the ones here list all of them. Both are restored from the names of the variables.
"""

from __future__ import annotations

from fleetx.static.op_registry import EMPTY_NAME, GRAD_SUFFIX, find_op
from fleetx.static.operator import Operator
from fleetx.static.program import Program


def _is_gradient(op: Operator) -> bool:
    return op.type.endswith("_grad") and any(slot.endswith(GRAD_SUFFIX) for slot in op._inputs)


def _grad_fits(grad: str, name: str) -> bool:
    # A gradient collected from several places has parts named w@GRAD@RENAME@...
    return (
        grad == EMPTY_NAME
        or grad == name + GRAD_SUFFIX
        or grad.startswith(name + GRAD_SUFFIX + "@")
    )


def _matches(grad_op: Operator, forward: Operator) -> bool:
    fits = False
    for slot, names in grad_op._inputs.items():
        base = slot.removesuffix(GRAD_SUFFIX)
        given = forward._inputs.get(slot, forward._outputs.get(slot))
        if given is not None and names and names != given:
            return False
        if slot != base and base in forward._outputs and names:
            outputs = forward._outputs[base]
            if len(outputs) != len(names) or not all(map(_grad_fits, names, outputs)):
                return False
            fits = True
    for slot, names in grad_op._outputs.items():
        inputs = forward._inputs.get(slot.removesuffix(GRAD_SUFFIX), [])
        if names and not all(map(_grad_fits, names, inputs)):
            return False
    return fits


def link_gradients(program: Program) -> None:
    """Set `forward_uid` and the forward variables of all gradient ops that have a forward op."""
    for block in program.blocks:
        home = program.blocks[block.forward_block_idx] if block.forward_block_idx >= 0 else block
        earlier: dict[str, list[Operator]] = {}
        if home is not block:
            for op in home.ops:
                earlier.setdefault(op.type, []).append(op)
        for op in block.ops:
            if _is_gradient(op):
                candidates = earlier.get(op.type.removesuffix("_grad"), [])
                forward = next((c for c in reversed(candidates) if _matches(op, c)), None)
                if forward is not None:
                    _link(op, forward)
            earlier.setdefault(op.type, []).append(op)


def _link(op: Operator, forward: Operator) -> None:
    op.forward_uid = forward.uid
    definition = find_op(op.type)
    known = {slot.name for slot in definition.inputs} if definition is not None else set()
    for slots in (forward._outputs, forward._inputs):
        for slot, names in slots.items():
            if slot in known and not op._inputs.get(slot):
                op._inputs[slot] = list(names)
