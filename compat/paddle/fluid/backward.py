"""Gradients of a program."""

from collections.abc import Collection, Sequence
from typing import Any

from fleetx.static.autodiff.backward import append_backward, gradients
from fleetx.static.autodiff.op_path import op_path, stopped_gradients, unneeded_outputs
from fleetx.static.graph.block import Block
from fleetx.static.graph.op_registry import GRAD_SUFFIX
from fleetx.static.graph.operator import Operator
from fleetx.static.graph.variable import Variable

_get_stop_gradients_ = stopped_gradients


def calc_gradient(
    targets: Any, inputs: Any, target_gradients: Any = None, no_grad_set: Any = None
) -> Variable | list[Variable] | None:
    """Return the gradients of targets by inputs; the one gradient itself for one input."""
    found = gradients(targets, inputs, target_gradients, no_grad_set)
    return found[0] if len(found) == 1 else found


def _append_grad_suffix_(name: str) -> str:
    return name + GRAD_SUFFIX


def _strip_grad_suffix_(name: str) -> str:
    return name.partition(GRAD_SUFFIX)[0]


def _as_list(x: Any) -> list[Any]:
    if x is None:
        return []
    return list(x) if isinstance(x, Sequence) else [x]


def _find_op_path_(
    block: Block,
    outputs: Sequence[Variable],
    inputs: Sequence[Variable],
    no_grad_set: Collection[str],
) -> list[Operator]:
    names = [[variable.name for variable in variables] for variables in (outputs, inputs)]
    return op_path(block, names[0], no_grad_set, names[1])


def _find_no_grad_vars(
    block: Block,
    op_path: Sequence[Operator],
    targets: Sequence[Variable],
    no_grad_set: Collection[str],
) -> set[str]:
    return unneeded_outputs(block, op_path, [target.name for target in targets], no_grad_set)


__all__ = ["append_backward", "calc_gradient", "gradients"]
