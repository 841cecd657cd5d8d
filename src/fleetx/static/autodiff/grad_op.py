"""The gradient op `<op>_grad` of any op, derived from the op's definition.

It runs the forward function again under autograd and computes the vector-Jacobian product. The
lowering rarely calls it: a whole backward pass becomes one call of autograd (see
`lowering/backward_call.py`). It runs if a program changes gradients inside the backward pass (error
clipping), updates parameters between two backward passes, or computes second derivatives.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import torch

from fleetx.static.graph.op_registry import EMPTY_NAME, GRAD_SUFFIX, Attr, OpDef, Slot, grad_type_of

if TYPE_CHECKING:
    from fleetx.static.graph.block import Block
    from fleetx.static.graph.operator import Operator


def grad_slots(forward: OpDef) -> tuple[tuple[Slot, ...], tuple[Slot, ...]]:
    """Return the input and output slots of the gradient op."""
    inputs = [dataclasses.replace(s, optional=True) for s in forward.inputs]
    taken = {s.name for s in inputs}
    inputs += [
        dataclasses.replace(s, optional=True) for s in forward.outputs if s.name not in taken
    ]
    inputs += [Slot(s.name + GRAD_SUFFIX, s.many, optional=True) for s in forward.outputs]
    outputs = [Slot(s.name + GRAD_SUFFIX, s.many, optional=True) for s in forward.inputs]
    return tuple(inputs), tuple(outputs)


def make_grad_def(forward: OpDef) -> OpDef:
    """Return the definition of the gradient op of `forward`."""
    inputs, outputs = grad_slots(forward)

    def run(*args: Any, names: dict[str, Any], **keywords: Any) -> Any:
        return _vjp(forward, inputs, args, names, keywords)

    return OpDef(
        type=grad_type_of(forward.type),
        inputs=inputs,
        outputs=outputs,
        attrs={k: Attr(a.kind, a.default) for k, a in forward.attrs.items()},
        fn=run,
        infer=_infer,
        names=forward.names | {"names"},
        random=forward.random,
    )


def _infer(op: Operator, block: Block) -> None:
    """Give every gradient the shape and type of its variable."""
    for slot, names in op.outputs.items():
        for name, source in zip(names, op.input(slot[: -len(GRAD_SUFFIX)]), strict=False):
            var = block.find_var(name)
            origin = block.find_var(source)
            if var is not None and origin is not None and origin.dtype is not None:
                var.set_inferred(origin.shape, origin.dtype)


def _vjp(
    forward: OpDef,
    slots: tuple[Slot, ...],
    args: tuple[Any, ...],
    names: dict[str, Any],
    keywords: dict[str, Any],
) -> Any:
    values = dict(zip((s.name for s in slots), args, strict=True))
    wanted = names["outputs"]
    # Second derivatives: keep the graph of the inputs instead of detaching them.
    second_order = torch.is_grad_enabled() and any(
        isinstance(t, torch.Tensor) and t.requires_grad for a in args for t in _as_list(a)
    )
    changed = set(forward.inplace.values())
    targets: list[torch.Tensor] = []
    places: list[tuple[str, int]] = []
    inputs: list[Any] = []
    with torch.enable_grad():
        for slot in forward.inputs:
            names_out = wanted.get(slot.name + GRAD_SUFFIX, [])
            if _is_array(slot, values):  # one name for all elements
                names_out = names_out * len(values[slot.name])
            row = []
            for i, value in enumerate(_as_list(values[slot.name])):
                if i < len(names_out) and names_out[i] != EMPTY_NAME and value is not None:
                    value = getattr(value, "tensor", value)
                    value = value.view_as(value) if second_order else value.detach()
                    if not value.requires_grad:
                        value = value.detach().requires_grad_()
                    targets.append(value)
                    places.append((slot.name, i))
                elif slot.name in changed and isinstance(value, torch.Tensor):
                    value = value.clone()  # the forward op has already changed it in place
                row.append(value)
            inputs.append(_as_given(slot, values, row))
        keywords = {k: v for k, v in keywords.items() if k in forward.names}
        if "names" in forward.names:
            keywords["names"] = forward_names(forward, names)
        result = forward.fn(*inputs, **keywords)
        result = (result,) if len(forward.outputs) == 1 else result
        outs, out_grads = [], []
        for slot, value in zip(forward.outputs, result, strict=True):
            grads = _as_list(values[slot.name + GRAD_SUFFIX])
            for tensor, grad in zip(_as_list(value), grads, strict=False):
                tensor = getattr(tensor, "tensor", tensor)
                if grad is not None and isinstance(tensor, torch.Tensor) and tensor.requires_grad:
                    outs.append(tensor)
                    out_grads.append(grad.reshape(tensor.shape).to(tensor.dtype))
        found: Any = [None] * len(targets)
        if outs and targets:
            found = torch.autograd.grad(
                outs, targets, out_grads, allow_unused=True, create_graph=second_order
            )
    by_place = {
        place: torch.zeros_like(target) if grad is None else grad
        for place, target, grad in zip(places, targets, found, strict=True)
    }
    answer = []
    for slot in forward.inputs:
        row = [by_place.get((slot.name, i)) for i in range(len(_as_list(values[slot.name])))]
        answer.append(_as_given(slot, values, row))
    return answer[0] if len(answer) == 1 else tuple(answer)


def forward_names(forward: OpDef, names: dict[str, Any]) -> dict[str, Any]:
    """Return the variable names of the forward op from those of its gradient op."""
    given = names["inputs"]
    return {
        "inputs": {s.name: given.get(s.name, []) for s in forward.inputs},
        "outputs": {s.name: given.get(s.name, []) for s in forward.outputs},
    }


def _is_array(slot: Slot, values: dict[str, Any]) -> bool:
    """Return whether a slot for one value holds an array of tensors."""
    return not slot.many and isinstance(values[slot.name], list)


def _as_given(slot: Slot, values: dict[str, Any], row: list[Any]) -> Any:
    """Return a slot's value: a list for several values or for an array."""
    if slot.many or _is_array(slot, values):
        return row
    return row[0] if row else None


def _as_list(value: Any) -> list[Any]:
    if value is None:
        return []
    return value if isinstance(value, list) else [value]
