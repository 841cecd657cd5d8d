"""The gradient op of a single op: what it would read and write.

`append_backward` writes gradient ops into a program; scripts that inspect or rewrite programs need
the gradient op of a single op, without a loss.
"""

from __future__ import annotations

from collections.abc import Collection

from fleetx.static.graph.dtypes import is_floating
from fleetx.static.graph.op_registry import (
    EMPTY_NAME,
    GRAD_SUFFIX,
    forward_type_of,
    get_op,
    grad_type_of,
    has_op,
)
from fleetx.static.graph.operator import Operator
from fleetx.static.protobuf.op_proto import op_proto


def has_gradient(type: str) -> bool:
    """Return whether ops of a type have gradient ops; gradients of gradients have none."""
    forward = forward_type_of(type)
    if forward is not None and forward_type_of(forward) is not None:
        return False
    return has_op(type) and get_op(type).grad is not None


def gradient_ops(op: Operator, no_grad: Collection[str]) -> tuple[list[Operator], dict[str, str]]:
    """Return the gradient ops of an op, and the variable of each gradient that they write.

    Inputs of integer types and those in `no_grad` get no gradient. The ops are in no block.
    """
    if not has_gradient(op.type):
        return [], {}
    op_def = get_op(op.type)
    inputs = {slot.name: list(op.input(slot.name)) for slot in op_def.inputs}
    results = {slot.name for slot in op_proto(op.type).outputs if not slot.intermediate}
    results.discard("ReserveSpace")  # cuDNN's workspace
    for slot in op_def.outputs:
        names = op.output(slot.name)
        inputs.setdefault(slot.name, list(names))
        # Statistics updated in place and values saved for backward have no gradients.
        if slot.name in results and not set(names) & set(op.input_arg_names):
            inputs[slot.name + GRAD_SUFFIX] = [name + GRAD_SUFFIX for name in names]
    outputs: dict[str, list[str]] = {}
    variables: dict[str, str] = {}
    for slot in op_def.inputs:
        names = op.input(slot.name)
        got = [_gets_gradient(op, name, no_grad) for name in names]
        if slot.name in op_def.no_grad_slots or not any(got):
            continue
        outputs[slot.name + GRAD_SUFFIX] = [
            name + GRAD_SUFFIX if gets else EMPTY_NAME
            for name, gets in zip(names, got, strict=True)
        ]
        variables.update({n + GRAD_SUFFIX: n for n, gets in zip(names, got, strict=True) if gets})
    if not outputs:
        return [], {}
    filled = {slot: names for slot, names in inputs.items() if names}
    attrs = {k: v for k, v in op.attrs.items() if not k.startswith("op_")}
    return [Operator(op.block, grad_type_of(op.type), filled, outputs, attrs)], variables


def _gets_gradient(op: Operator, name: str, no_grad: Collection[str]) -> bool:
    if name in no_grad or name + GRAD_SUFFIX in no_grad:
        return False
    variable = op.block.find_var(name)
    return variable is None or is_floating(variable.dtype)
