"""Gradients of a program."""

from typing import Any

from fleetx.static.autodiff.backward import append_backward, gradients
from fleetx.static.graph.variable import Variable


def calc_gradient(
    targets: Any, inputs: Any, target_gradients: Any = None, no_grad_set: Any = None
) -> Variable | list[Variable] | None:
    """Return the gradients of targets by inputs; the one gradient itself for one input."""
    found = gradients(targets, inputs, target_gradients, no_grad_set)
    return found[0] if len(found) == 1 else found


__all__ = ["append_backward", "calc_gradient", "gradients"]
