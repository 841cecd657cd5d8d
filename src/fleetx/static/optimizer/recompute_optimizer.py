"""RecomputeOptimizer: forgets activations between checkpoints and recomputes them for gradients.

Which ops are run again is decided by `append_backward(checkpoints=...)`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fleetx.static.autodiff.backward import append_backward
from fleetx.static.errors import ArgumentError
from fleetx.static.graph.operator import Operator
from fleetx.static.graph.program import Program, program_guard
from fleetx.static.graph.variable import Variable
from fleetx.static.optimizer.base import Optimizer


class RecomputeOptimizer:
    """Wraps an optimizer; `set_checkpoints` names the variables that stay in memory."""

    def __init__(self, optimizer: Optimizer) -> None:
        self._optimizer = optimizer
        self._checkpoints: list[Any] | None = None
        self.enable_offload = False
        """Checkpoints wait for backward in the memory of the host."""

    def __getattr__(self, name: str) -> Any:
        if name == "_optimizer":  # not yet set: while being copied
            raise AttributeError(name)
        return getattr(self._optimizer, name)

    def set_checkpoints(self, checkpoints: Sequence[Any]) -> None:
        """Say which Variables (or names) are kept; everything between them is recomputed."""
        if not isinstance(checkpoints, list | tuple):
            raise TypeError(
                "checkpoints must be a list of Variables or names, "
                f"not {type(checkpoints).__name__}."
            )
        self._checkpoints = list(checkpoints)

    _set_checkpoints = set_checkpoints  # Paddle's name

    def _enable_offload(self) -> None:
        """Keep checkpoints in the memory of the host until backward needs them."""
        self.enable_offload = True

    def load(self, stat_dict: dict[str, Any]) -> None:
        """Refuse: the state belongs to the inner optimizer."""
        raise NotImplementedError("load function is not supported by Recompute Optimizer for now")

    def backward(
        self,
        loss: Variable,
        startup_program: Program | None = None,
        parameter_list: Sequence[Any] | None = None,
        no_grad_set: Any = None,
        callbacks: Sequence[Any] | None = None,
    ) -> list[tuple[Any, Any]]:
        """Append the backward pass with recomputation; return the pairs (parameter, gradient)."""
        self._optimizer._dtype = loss.dtype
        loss.block.program.binding.offloads_checkpoints = self.enable_offload
        with program_guard(loss.block.program, startup_program):
            return append_backward(
                loss,
                parameter_list or self._optimizer._parameter_list,
                self._optimizer._get_no_grad_set(loss, no_grad_set),
                callbacks,
                checkpoints=self._checkpoints,
            )

    def minimize(
        self,
        loss: Variable,
        startup_program: Program | None = None,
        parameter_list: Sequence[Any] | None = None,
        no_grad_set: Any = None,
    ) -> tuple[list[Operator], list[tuple[Any, Any]]]:
        """Append gradients and updates; return (update ops, pairs)."""
        if self._checkpoints is None:
            raise ArgumentError("call set_checkpoints before minimize of a RecomputeOptimizer.")
        params_grads = self.backward(loss, startup_program, parameter_list, no_grad_set)
        ops = self._optimizer.apply_optimize(loss, startup_program, params_grads)
        return ops, params_grads
