"""One backward pass: the gradient ops of the ops on a path, and the variables they write.

The gradient of a variable that is used several times is a `sum` of partial gradients, written under
Paddle's names. Recomputed values get new names.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

from fleetx.static import unique_name
from fleetx.static.autodiff.recomputed_segments import Segment
from fleetx.static.graph.block import Block
from fleetx.static.graph.dtypes import VarType, is_floating
from fleetx.static.graph.op_registry import EMPTY_NAME, GRAD_SUFFIX, get_op, grad_type_of
from fleetx.static.graph.operator import Operator, OpRole
from fleetx.static.graph.variable import Parameter, Variable

_backward_ids = itertools.count(1)


def new_backward_id() -> int:
    """Return a number for a new backward pass; see `Operator.backward_id`."""
    return next(_backward_ids)


# The partial gradients of one variable: the op that writes each, slot, index and name.
Partials = list[tuple[Operator | None, str, int, str]]


class BackwardPass:
    """One call of append_backward: collects gradient ops for a block."""

    def __init__(
        self,
        block: Block,
        no_grad: set[str],
        wanted: set[str],
        callbacks: Sequence[Callable[..., Any]] = (),
    ) -> None:
        self.block = block
        self.callbacks = callbacks
        self.no_grad = no_grad
        self.wanted = wanted  # variables that get a gradient regardless of stop_gradient
        self.id = new_backward_id()
        self.partials: dict[str, Partials] = {}
        self.final: dict[str, str] = {}
        self._grad_names: dict[str, str] = {}
        self.segments: dict[int, Segment] = {}  # of ops whose inputs are recomputed, by uid

    def grad_name(self, name: str) -> str:
        """Return the gradient's name; a second backward pass in a program gets fresh names."""
        if name not in self._grad_names:
            grad = name + GRAD_SUFFIX
            taken = self.block.has_var(grad)
            self._grad_names[name] = unique_name.generate(grad) if taken else grad
        return self._grad_names[name]

    def create_var(self, name: str, like: Variable) -> Variable:
        """Create a gradient's variable, or that of a recomputed value, like another one."""
        return self.block.create_var(
            name=name,
            shape=like._shape,
            dtype=like.dtype,
            type=like.type if like.type == VarType.LOD_TENSOR_ARRAY else VarType.LOD_TENSOR,
            lod_level=like.lod_level,
            persistable=False,
        )

    def finish_all(self, names: Sequence[str]) -> list[str | None]:
        """Complete all gradients; return those of some variables, None where there is none."""
        found = [self.finish(name) for name in names]
        for name in list(self.partials):
            self.finish(name)
        return found

    def add(self, name: str, op: Operator | None, slot: str, index: int) -> str:
        """Register an op that writes a gradient of variable `name`; return the name to write to."""
        partials = self.partials.setdefault(name, [])
        base = self.grad_name(name)
        var = self.block.var_recursive(name)
        if not partials:
            grad_name = base
        else:
            if len(partials) == 1:
                self._rename_first(partials, base, var)
            grad_name = f"{base}@RENAME@block{self.block.idx}@{len(partials)}"
        self.create_var(grad_name, var)
        partials.append((op, slot, index, grad_name))
        return grad_name

    def _rename_first(self, partials: Partials, base: str, var: Variable) -> None:
        first, slot, index, _ = partials[0]
        renamed = f"{base}@RENAME@block{self.block.idx}@0"
        self.create_var(renamed, var)
        if first is None:  # given by the caller: the gradient of a target
            self.append("assign", {"X": [base]}, {"Out": [renamed]}, {})
        else:
            first.outputs[slot][index] = renamed
        partials[0] = (first, slot, index, renamed)

    def finish(self, name: str) -> str | None:
        """Return the gradient of a variable, summing its parts; None if there is none."""
        partials = self.partials.pop(name, None)
        if partials is None:
            return self.final.get(name)
        base = self.grad_name(name)
        if len(partials) > 1:
            parts = [p[3] for p in partials]
            self.create_var(base, self.block.var_recursive(name))
            self.append("sum", {"X": parts}, {"Out": [base]}, {})
        self.final[name] = base
        for callback in self.callbacks:
            callback(block=self.block, context={base: name})
        return base

    def append(
        self, type: str, inputs: dict[str, Any], outputs: dict[str, Any], attrs: dict[str, Any]
    ) -> Operator:
        """Append an op of this backward pass to the block."""
        attrs = {**attrs, "op_role": OpRole.Backward}
        op = Operator(self.block, type, inputs, outputs, attrs)
        op.backward_id = self.id
        self.block.program._stamp(op)
        self.block.ops.append(op)
        for name in op.output_arg_names:
            var = self.block.find_var(name)
            if var is not None:
                var.op = op
        self.block.program.bump_version()
        return op

    # -- which variables get gradients -------------------------------------------------
    def may_get_grad(self, name: str) -> bool:
        """Return whether a gradient may flow into this variable."""
        var = self.block.find_var(name)
        if var is None or name in self.no_grad:
            return False
        if var.type != VarType.LOD_TENSOR_ARRAY and not is_floating(var.dtype):
            return False
        if name in self.wanted:
            return True
        if isinstance(var, Parameter) and not var.trainable:
            return False
        return not var.stop_gradient

    def live_variables(self, path: list[Operator]) -> set[str]:
        """Return the variables of the path that get a gradient.

        As in Paddle, these include variables that depend on no trainable parameter: scripts fetch
        the gradients of values computed from feeds. Unused gradients are not computed.
        """
        names = {n for op in path for n in (*op.input_arg_names, *op.output_arg_names)}
        return {name for name in names if self.may_get_grad(name)}

    def run(self, path: list[Operator]) -> None:
        """Append the gradient ops of the ops on the path, last first."""
        live = self.live_variables(path)
        for op in reversed(path):
            op_def = get_op(op.type)
            if op_def.grad is None:
                continue
            has_grad = {n: self.finish(n) for n in op.output_arg_names}
            if not any(has_grad.values()):
                continue
            fresh = self.recompute(op)
            inputs: dict[str, list[str]] = {
                s.name: [fresh.get(n, n) for n in op.input(s.name)] for s in op_def.inputs
            }
            for slot in op_def.outputs:
                inputs.setdefault(slot.name, [fresh.get(n, n) for n in op.output(slot.name)])
                grads = [has_grad.get(n) or EMPTY_NAME for n in op.output(slot.name)]
                if any(g != EMPTY_NAME for g in grads):
                    inputs[slot.name + GRAD_SUFFIX] = grads
            # Gradients of overwritten variables are complete; earlier uses start new ones.
            for name in op.output_arg_names:
                if name in op.input_arg_names:
                    self.final.pop(name, None)
            self._append_grad_op(op, inputs, live)

    def recompute(self, op: Operator) -> dict[str, str]:
        """Return the new names of values that are recomputed for the op's gradient.

        The ops that compute them are appended at the first op of their segment.
        """
        segment = self.segments.get(op.uid)
        if segment is None:
            return {}
        renames = segment.renames
        for again in [] if segment.is_done else segment.again:
            written = {**renames, **segment.unread}
            for name in again.output_arg_names:
                if name in written:
                    self.create_var(written[name], self.block.var_recursive(name))
            inputs, outputs = (
                {slot: [new.get(n, n) for n in names] for slot, names in slots.items()}
                for slots, new in ((again.inputs, renames), (again.outputs, written))
            )
            self.append(again.type, inputs, outputs, again.attrs).recomputes = again.uid
        segment.is_done = True
        return renames

    def _append_grad_op(self, op: Operator, inputs: dict[str, list[str]], live: set[str]) -> None:
        op_def = get_op(op.type)
        gets = [
            (slot.name, i, name)
            for slot in op_def.inputs
            if slot.name not in op_def.no_grad_slots
            for i, name in enumerate(op.input(slot.name))
            if name in live
        ]
        if not gets:
            return
        outputs: dict[str, list[str]] = {}
        for slot_name, _, _ in gets:
            outputs[slot_name + GRAD_SUFFIX] = [EMPTY_NAME] * len(op.input(slot_name))
        attrs = {
            k: v for k, v in op.attrs.items() if k not in ("op_role", "op_callstack", "op_role_var")
        }
        inputs = {k: v for k, v in inputs.items() if v}
        grad_op = self.append(grad_type_of(op.type), inputs, outputs, attrs)
        grad_op.forward_uid = op.uid
        for slot_name, index, name in gets:
            grad = self.add(name, grad_op, slot_name + GRAD_SUFFIX, index)
            grad_op.outputs[slot_name + GRAD_SUFFIX][index] = grad
            self.block.var_recursive(grad).op = grad_op
