"""append_backward and gradients: add the backward pass to a program.

Every op on the path from the parameters to the loss gets a gradient op, in reverse order
(`backward_pass.py`). The result is visible (`x@GRAD`, `mul_grad`) and can be fetched, read by other
ops, or changed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fleetx.static.autodiff.backward_pass import BackwardPass
from fleetx.static.autodiff.op_path import op_path
from fleetx.static.autodiff.recomputed_segments import make_segments, seed_dropouts
from fleetx.static.graph.block import Block
from fleetx.static.graph.operator import Operator, OpRole
from fleetx.static.graph.variable import Variable


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
            maps the gradient's name to its variable's.
        checkpoints: variables (or names) to keep; activations between them are freed after the
            forward pass and recomputed.
    """
    if not isinstance(loss, Variable):
        raise TypeError(f"loss of append_backward must be a Variable, not {type(loss).__name__}.")
    if callbacks is not None and not isinstance(callbacks, list | tuple):
        raise TypeError("callbacks of append_backward must be a list or tuple.")
    program = loss.block.program
    # The backward pass of a loss in an inner block stays in that block, as in Paddle.
    block = loss.block
    known = [d for d in loss.shape if d != 1]
    if known:
        raise ValueError(
            f"the loss must have one element, but {loss.name!r} has shape {loss.shape}: "
            "reduce it to one value first, for example with mean()."
        )
    producer = next((op for op in reversed(block.ops) if loss.name in op.output_arg_names), None)
    if producer is None:
        raise ValueError(f"loss {loss.name!r} is not computed by any op of its program.")
    producer.attrs["op_role"] = producer.op_role | OpRole.Loss
    no_grad = set(names_in(no_grad_set, "no_grad_set"))
    work = BackwardPass(block, no_grad, set(), callbacks or ())
    params = _parameters(block, parameter_list)
    path = op_path(block, [loss.name], set())
    if checkpoints:
        path = seed_dropouts(block, path)
        work.segments = make_segments(block, path, names_in(checkpoints, "checkpoints"))
    with program.backward_role_guard():
        work.create_var(work.grad_name(loss.name), loss)
        _append_seed(block, loss, work.grad_name(loss.name))
        work.final[loss.name] = work.grad_name(loss.name)
        work.run(path)
        pairs = []
        for param, grad in zip(params, work.finish_all([p.name for p in params]), strict=True):
            if grad is not None and grad != param.name:
                grad_var = block.var(grad)
                pairs.append((param, grad_var))
                if grad_var.op is not None:
                    roles = grad_var.op.attrs.setdefault(Operator.OP_ROLE_VAR, [])
                    grad_var.op.attrs[Operator.OP_ROLE_VAR] = [*roles, param.name, grad]
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
    return [block.var_recursive(name) for name in names_in(parameter_list, "parameter_list")]


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
    for weight in weights:
        if not isinstance(weight, Variable | None):
            raise TypeError(
                "target_gradients of gradients must be Variables or None, not "
                f"{type(weight).__name__}."
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
    work = BackwardPass(block, set(names_in(no_grad_set, "no_grad_set")), set(names))
    path = op_path(block, [t.name for t in targets], set())
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
                work.partials[target.name] = [(None, "", 0, seed)]
            else:
                if tuple(weight.shape) != tuple(target.shape) and -1 not in target.shape:
                    raise ValueError(
                        f"target_gradient {weight.name!r} has shape {weight.shape}, but its target "
                        f"{target.name!r} has {target.shape}."
                    )
                work.final[target.name] = weight.name
                work._grad_names[target.name] = weight.name
        work.run(path)
        found = work.finish_all(names)
    return [None if grad is None else block.var(grad) for grad in found]
