"""Restore the links of gradient ops, which files do not contain.

Each gradient op gets its forward op (`forward_uid`), each op that runs again the one it is a copy
of (`recomputes`), and both the backward pass they belong to (`backward_id`). Also, a gradient op
of Paddle lists only the forward variables that its kernel reads (`relu_grad` has no X), while ours
list all of them. Everything is derived from the names of the variables.
"""

from __future__ import annotations

from fleetx.static.autodiff.backward_pass import new_backward_id
from fleetx.static.autodiff.recomputed_segments import first_name, number_of
from fleetx.static.graph.block import Block
from fleetx.static.graph.op_registry import EMPTY_NAME, GRAD_SUFFIX, find_op, forward_type_of
from fleetx.static.graph.operator import Operator, OpRole
from fleetx.static.graph.program import Program


def _is_gradient(op: Operator) -> bool:
    return forward_type_of(op.type) is not None and any(
        slot.endswith(GRAD_SUFFIX) for slot in op.inputs
    )


def _grad_fits(grad: str, name: str) -> bool:
    # Parts of a gradient are called w@GRAD@RENAME@..., that of a second pass w@GRAD_0.
    return grad == EMPTY_NAME or grad.startswith(name + GRAD_SUFFIX)


def _matches(grad_op: Operator, forward: Operator) -> bool:
    fits = False
    for slot, names in grad_op.inputs.items():
        base = slot.removesuffix(GRAD_SUFFIX)
        given = forward.inputs.get(slot, forward.outputs.get(slot))
        if given is not None and names and [first_name(n) for n in names] != given:
            return False
        if slot != base and base in forward.outputs and names:
            outputs = forward.outputs[base]
            if len(outputs) != len(names) or not all(map(_grad_fits, names, outputs)):
                return False
            fits = True
    for slot, names in grad_op.outputs.items():
        inputs = forward.inputs.get(slot.removesuffix(GRAD_SUFFIX), [])
        if names and not (len(names) == len(inputs) and all(map(_grad_fits, names, inputs))):
            return False
    return fits


def _is_copy(op: Operator, forward: Operator) -> bool:
    """Return whether an op recomputes the values of another one."""
    return (
        any(number_of(n) is not None for n in op.output_arg_names)
        and [first_name(n) for n in op.output_arg_names] == forward.output_arg_names
        and [first_name(n) for n in op.input_arg_names] == forward.input_arg_names
    )


def link_gradients(program: Program) -> None:
    """Link the gradient ops of all blocks to the ops they differentiate."""
    for block in program.blocks:
        earlier: dict[str, list[Operator]] = {}
        if (
            block.forward_block_idx >= 0
        ):  # the gradient of a body: its forward ops are in that block
            for op in program.blocks[block.forward_block_idx].ops:
                earlier.setdefault(op.type, []).append(op)
        for op in block.ops:
            if _is_gradient(op):
                candidates = earlier.get(forward_type_of(op.type) or "", [])
                forward = next((c for c in reversed(candidates) if _matches(op, c)), None)
                if forward is not None:
                    _link(op, forward)
            elif op.op_role & OpRole.Backward:
                candidates = earlier.get(op.type, [])
                op.recomputes = next((c.uid for c in candidates if _is_copy(op, c)), None)
            earlier.setdefault(op.type, []).append(op)
    _number_passes(program.global_block())


def _link(op: Operator, forward: Operator) -> None:
    op.forward_uid = forward.uid
    op.outputs = {slot: names for slot, names in op.outputs.items() if names}
    definition = find_op(op.type)
    known = {slot.name for slot in definition.inputs} if definition is not None else set()
    for slots in (forward.outputs, forward.inputs):
        for slot, names in slots.items():
            if slot in known and not op.inputs.get(slot):
                op.inputs[slot] = list(names)


def _number_passes(block: Block) -> None:
    """Number the backward passes of the ops; a pass starts with the gradient of a loss."""
    number: int | None = None
    produced: set[str] = set()
    for op in block.ops:
        if not op.op_role & OpRole.Backward:
            continue
        if op.op_role & OpRole.Loss and op.type == "fill_constant":
            number, produced = new_backward_id(), set()
        elif (
            op.forward_uid is not None
            or op.recomputes is not None
            or (op.type == "sum" and produced >= set(op.input("X")))
        ):
            op.backward_id = number
            produced.update(op.output_arg_names)
