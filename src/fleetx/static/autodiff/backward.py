"""append_backward and gradients: add the backward pass to a program.

Every op on the path from the parameters to the loss gets a gradient op, in reverse order; the
gradient of a variable that is used several times is a `sum` of partial gradients. The result is
visible (`x@GRAD`, `mul_grad`) and can be fetched, read by other ops, or changed.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from fleetx.static import unique_name
from fleetx.static.autodiff.recomputed_segments import Segment, make_segments, seed_dropouts
from fleetx.static.graph.block import Block
from fleetx.static.graph.dtypes import VarType, is_floating
from fleetx.static.graph.op_registry import EMPTY_NAME, GRAD_SUFFIX, get_op, grad_type_of
from fleetx.static.graph.operator import Operator, OpRole
from fleetx.static.graph.variable import Parameter, Variable

_backward_ids = itertools.count(1)


def new_backward_id() -> int:
    """Return a number for a new backward pass; see `Operator.backward_id`."""
    return next(_backward_ids)


class _Partials:
    """The partial gradients of one variable, and where each was written."""

    def __init__(self) -> None:
        self.written: list[tuple[Operator | None, str, int, str]] = []  # op, slot, index, name


class _BackwardPass:
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
        self.partials: dict[str, _Partials] = {}
        self.final: dict[str, str] = {}
        self._grad_names: dict[str, str] = {}
        self.segments: dict[int, Segment] = {}  # of ops whose inputs are computed again, by uid

    def grad_name(self, name: str) -> str:
        """Return the gradient's name; a second backward pass in a program gets fresh names."""
        if name not in self._grad_names:
            grad = name + GRAD_SUFFIX
            taken = self.block.has_var(grad)
            self._grad_names[name] = unique_name.generate(grad) if taken else grad
        return self._grad_names[name]

    def create_var(self, name: str, like: Variable) -> Variable:
        return self.block.create_var(
            name=name,
            shape=like._shape,
            dtype=like.dtype,
            type=VarType.LOD_TENSOR_ARRAY
            if like.type == VarType.LOD_TENSOR_ARRAY
            else VarType.LOD_TENSOR,
            lod_level=like.lod_level,
            persistable=False,
        )

    def add(self, name: str, op: Operator | None, slot: str, index: int) -> str:
        """Register an op that writes a gradient of variable `name`; return the name to write to."""
        partials = self.partials.setdefault(name, _Partials())
        base = self.grad_name(name)
        var = self.block.var_recursive(name)
        if not partials.written:
            grad_name = base
        else:
            if len(partials.written) == 1:
                self._rename_first(partials, base, var)
            grad_name = f"{base}@RENAME@block{self.block.idx}@{len(partials.written)}"
        self.create_var(grad_name, var)
        partials.written.append((op, slot, index, grad_name))
        return grad_name

    def _rename_first(self, partials: _Partials, base: str, var: Variable) -> None:
        first, slot, index, _ = partials.written[0]
        renamed = f"{base}@RENAME@block{self.block.idx}@0"
        self.create_var(renamed, var)
        if first is None:  # the caller's own gradient of a target
            self.append("assign", {"X": [base]}, {"Out": [renamed]}, {})
        else:
            first.outputs[slot][index] = renamed
        partials.written[0] = (first, slot, index, renamed)

    def finish(self, name: str) -> str | None:
        """Return the gradient of a variable, summing its parts; None if there is none."""
        partials = self.partials.pop(name, None)
        if partials is None:
            return self.final.get(name)
        base = self.grad_name(name)
        if len(partials.written) > 1:
            parts = [p[3] for p in partials.written]
            self.create_var(base, self.block.var_recursive(name))
            self.append("sum", {"X": parts}, {"Out": [base]}, {})
        self.final[name] = base
        for callback in self.callbacks:
            callback(block=self.block, context={base: name})
        return base

    def append(
        self, type: str, inputs: dict[str, Any], outputs: dict[str, Any], attrs: dict[str, Any]
    ) -> Operator:
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
        """Return the variables on the path through which a gradient reaches something trainable."""
        produced: set[str] = set()
        live: set[str] = set()
        for op in path:
            op_def = get_op(op.type)
            reaches = False
            for slot in op_def.inputs:
                for name in op.input(slot.name):
                    if name not in produced and self.may_get_grad(name):
                        live.add(name)
                    if name in live and slot.name not in op_def.no_grad_slots:
                        reaches = True
            for name in op.output_arg_names:
                produced.add(name)
                if (reaches and op_def.grad is not None and self.may_get_grad(name)) or (
                    name in self.wanted and self.may_get_grad(name)
                ):
                    live.add(name)
                elif name not in op.input_arg_names:
                    live.discard(name)
        return live

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

    def _append_grad_op(
        self,
        op: Operator,
        inputs: dict[str, list[str]],
        live: set[str],
    ) -> None:
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


def _op_path(block: Block, targets: Iterable[str], stop: set[str]) -> list[Operator]:
    """Return the ops that the targets depend on, in order."""
    from fleetx.static.graph.op_names import reads_of

    needed = set(targets)
    path = []
    for op in reversed(block.ops):
        if any(n in needed for n in op.output_arg_names):
            path.append(op)
            needed.update(n for n in reads_of(op) if n not in stop)
    return path[::-1]


def names_in(values: Any, what: str) -> list[str]:
    """Return the names in a list of Variables and names; errors quote the argument `what`."""
    if values is None:
        return []
    if not isinstance(values, list | tuple | set):
        raise TypeError(f"{what} must be a list, tuple or set, not {type(values).__name__}.")
    names = []
    for value in values:
        if not isinstance(value, Variable | str):
            raise TypeError(
                f"the elements of {what} must be Variables or names, not {type(value).__name__}."
            )
        names.append(value if isinstance(value, str) else value.name)
    return names


def append_backward(
    loss: Variable,
    parameter_list: Sequence[Any] | None = None,
    no_grad_set: Any = None,
    callbacks: Sequence[Callable[..., Any]] | None = None,
    checkpoints: Sequence[Any] | None = None,
) -> list[tuple[Variable, Variable]]:
    """Append the backward pass of `loss`; return the pairs (parameter, gradient).

    Args:
        loss: a Variable with one element.
        parameter_list: parameters (or names) to differentiate; all trainable ones by default.
        no_grad_set: variables (or names) that gradients do not flow through.
        callbacks: called as `callback(block=, context=)` when a gradient is complete; `context`
            maps its name to its variable's.
        checkpoints: variables (or names) to keep; activations between them are freed after the
            forward pass and recomputed.
    """
    if not isinstance(loss, Variable):
        raise TypeError(
            f"The type of 'loss' in append_backward must be Variable, but received {type(loss)}."
        )
    if callbacks is not None and not isinstance(callbacks, list | tuple):
        raise TypeError("callbacks of append_backward must be a list or tuple.")
    program = loss.block.program
    # The backward pass of a loss in an inner block stays in that block, as in Paddle.
    block = loss.block
    known = [d for d in loss.shape if d != 1]
    if known:
        raise ValueError(
            f"The loss.shape should be (1,), but loss {loss.name!r} has shape {loss.shape}: "
            "reduce it to one value first, for example with mean()."
        )
    producer = next((op for op in reversed(block.ops) if loss.name in op.output_arg_names), None)
    if producer is None:
        raise ValueError(f"loss {loss.name!r} is not computed by any op of its program.")
    producer.attrs["op_role"] = producer.op_role | OpRole.Loss
    no_grad = set(names_in(no_grad_set, "no_grad_set"))
    work = _BackwardPass(block, no_grad, set(), callbacks or ())
    params = _parameters(block, parameter_list)
    path = _op_path(block, [loss.name], set())
    if checkpoints:
        path = seed_dropouts(block, path)
        work.segments = make_segments(block, path, names_in(checkpoints, "checkpoints"))
    with program.backward_role_guard():
        work.create_var(work.grad_name(loss.name), loss)
        _append_seed(block, loss, work.grad_name(loss.name))
        work.final[loss.name] = work.grad_name(loss.name)
        work.run(path)
        pairs = []
        for param in params:
            grad = work.finish(param.name)
            if grad is not None and grad != param.name:
                grad_var = block.var(grad)
                pairs.append((param, grad_var))
                if grad_var.op is not None:
                    roles = grad_var.op.attrs.setdefault(Operator.OP_ROLE_VAR, [])
                    grad_var.op.attrs[Operator.OP_ROLE_VAR] = [*roles, param.name, grad]
        for name in list(work.partials):
            work.finish(name)
    return pairs


def _append_seed(block: Block, target: Variable, grad_name: str) -> None:
    block.append_op(
        type="fill_constant",
        outputs={"Out": [grad_name]},
        attrs={
            "shape": list(target.shape) or [1],
            "value": 1.0,
            "dtype": int(target.dtype),
            "op_role": OpRole.Backward | OpRole.Loss,
        },
    )


def _parameters(block: Block, parameter_list: Sequence[Any] | None) -> list[Variable]:
    if parameter_list is None:
        return [p for p in block.program.all_parameters() if p.trainable]
    found = []
    for name in names_in(parameter_list, "parameter_list"):
        found.append(block.var_recursive(name))
    return found


def _variables(values: Any, what: str) -> list[Variable]:
    found = list(values) if isinstance(values, list | tuple) else [values]
    for value in found:
        if not isinstance(value, Variable):
            raise TypeError(f"{what} of gradients must be Variables, not {type(value).__name__}.")
    return found


def gradients(
    targets: Any, inputs: Any, target_gradients: Any = None, no_grad_set: Any = None
) -> list[Variable | None]:
    """Append the ops that differentiate `targets` with respect to `inputs`; return the gradients.

    A gradient is None if no target depends on the input. `target_gradients` are the gradients of
    the targets (ones by default).
    """
    targets = _variables(targets, "targets")
    inputs = _variables(inputs, "inputs")
    weights = (
        [None] * len(targets)
        if target_gradients is None
        else list(target_gradients)
        if isinstance(target_gradients, list | tuple)
        else [target_gradients]
    )
    if len(weights) != len(targets):
        raise ValueError(
            f"gradients() got {len(targets)} targets but {len(weights)} target_gradients."
        )
    block = targets[0].block.program.global_block()
    for target in targets:
        if target.block.program is not block.program:
            raise ValueError("all targets of gradients() must be in the same program.")
    names = [v.name for v in inputs]
    work = _BackwardPass(block, set(names_in(no_grad_set, "no_grad_set")), set(names))
    path = _op_path(block, [t.name for t in targets], set())
    with block.program.backward_role_guard():
        for target, weight in zip(targets, weights, strict=True):
            if weight is None:
                seed = work.grad_name(target.name)
                work.create_var(seed, target)
                if -1 in target.shape:
                    block.append_op(
                        type="fill_any_like",
                        inputs={"X": [target.name]},
                        outputs={"Out": [seed]},
                        attrs={"value": 1.0, "op_role": OpRole.Backward},
                    )
                else:
                    _append_seed(block, target, seed)
                work.final[target.name] = seed
                work.partials[target.name] = _Partials()
                work.partials[target.name].written.append((None, "", 0, seed))
            else:
                if tuple(weight.shape) != tuple(target.shape) and -1 not in target.shape:
                    raise ValueError(
                        f"target_gradient {weight.name!r} has shape {weight.shape}, but its target "
                        f"{target.name!r} has {target.shape}."
                    )
                work.final[target.name] = weight.name
                work._grad_names[target.name] = weight.name
        work.run(path)
        found: list[Variable | None] = []
        for name in names:
            grad = work.finish(name)
            found.append(None if grad is None else block.var(grad))
        for name in list(work.partials):
            work.finish(name)
    return found
