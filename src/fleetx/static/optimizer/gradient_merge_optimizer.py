"""GradientMergeOptimizer: one update for the gradients of several runs of the program.

Each run adds its gradients to `<parameter>@GRAD@GradientMerge`. In every k-th run a conditional
block clips and decays the sums, updates with them and sets them to zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fleetx.static import layers
from fleetx.static.errors import ArgumentError
from fleetx.static.graph.operator import Operator, OpRole
from fleetx.static.graph.program import (
    Program,
    default_main_program,
    default_startup_program,
    program_guard,
)
from fleetx.static.graph.variable import Variable
from fleetx.static.layers.control_flow import ConditionalBlock

SUFFIX = "@GRAD@GradientMerge"
CONDITION = "gradient_merge_cond"


class GradientMergeOptimizer:
    """Updates with the mean (or, without `avg`, the sum) of the gradients of `k_steps` runs."""

    type = "gradient_merge"

    def __init__(self, inner_optimizer: Any, k_steps: int = 1, avg: bool = True) -> None:
        if inner_optimizer is None:
            raise ArgumentError("inner_optimizer of GradientMergeOptimizer is not set.")
        if isinstance(k_steps, bool) or not isinstance(k_steps, int) or k_steps <= 0:
            raise ArgumentError(
                f"k_steps of GradientMergeOptimizer must be a positive integer, not {k_steps!r}."
            )
        self.inner_optimizer = inner_optimizer
        self.k_steps = k_steps
        self.avg = avg

    def __getattr__(self, name: str) -> Any:
        if name == "inner_optimizer":  # not yet set: while being copied
            raise AttributeError(name)
        return getattr(self.inner_optimizer, name)

    def _set_k_steps(self, k_steps: int) -> None:
        self.k_steps = k_steps

    def _set_avg(self, avg: bool) -> None:
        self.avg = avg

    def backward(
        self,
        loss: Variable,
        startup_program: Program | None = None,
        parameter_list: Sequence[Any] | None = None,
        no_grad_set: Any = None,
        callbacks: Sequence[Any] | None = None,
    ) -> list[tuple[Any, Any]]:
        """Append the backward pass of the inner optimizer; return the pairs."""
        for name, value in (("parameter_list", parameter_list), ("no_grad_set", no_grad_set)):
            if value is not None:
                raise ArgumentError(
                    f"{name} must be None with gradient merge: give parameters to the optimizer "
                    "itself, and set stop_gradient or trainable=False on the others."
                )
        pairs: list[tuple[Any, Any]] = self.inner_optimizer.backward(
            loss, startup_program=startup_program
        )
        return pairs

    def apply_gradients(self, params_grads: Sequence[tuple[Any, Any]]) -> list[Operator]:
        """Append sums and the conditional update to the default program; return the updates."""
        program = default_main_program()
        pairs = [(p, self._merged(p, g)) for p, g in params_grads if g is not None]
        with program.optimized_guard([]):
            condition = self._append_count(program.global_block())
            with ConditionalBlock([condition], is_scalar_condition=True).block():
                return self._append_update(program.current_block(), pairs)

    def _append_update(self, block: Any, pairs: Sequence[tuple[Any, Any]]) -> list[Operator]:
        if self.avg:
            for _, merged in pairs:
                block.append_op(
                    type="scale",
                    inputs={"X": [merged]},
                    outputs={"Out": [merged]},
                    attrs={"scale": 1.0 / self.k_steps, "op_role": OpRole.Backward},
                )
        updates: list[Operator] = self.inner_optimizer.apply_gradients(pairs)
        for _, merged in pairs:
            layers.fill_constant(shape=merged.shape, dtype=merged.dtype, value=0.0, out=merged)
        return updates

    @staticmethod
    def _merged(param: Any, grad: Variable) -> Variable:
        """Create the sum of a gradient and append the op that adds to it."""
        settings = {
            "name": param.name + SUFFIX,
            "shape": param.shape,
            "dtype": param.dtype,
            "persistable": True,
        }
        startup = default_startup_program().global_block()
        startup.append_op(
            type="fill_constant",
            outputs={"Out": [startup.create_var(**settings)]},
            attrs={"shape": list(param.shape), "dtype": param.dtype, "value": 0.0},
        )
        block = default_main_program().global_block()
        merged: Variable = block.create_var(**settings)
        block.append_op(
            type="elementwise_add",
            inputs={"X": [grad], "Y": [merged]},
            outputs={"Out": [merged]},
            attrs={"axis": -1, "op_role": OpRole.Backward},
        )
        return merged

    def _append_count(self, block: Any) -> Variable:
        """Append the count of runs; return the variable that is true in every k-th one."""

        def number(name: str, value: int) -> Variable:
            return layers.create_global_var(
                name=name, shape=[1], value=value, dtype="int32", persistable=True
            )

        k, zero = number("gradient_merge_k", self.k_steps), number("gradient_merge_zero", 0)
        step = number("gradient_merge_step", 0)
        condition: Variable = block.create_var(name=CONDITION, shape=[1], dtype="bool")
        layers.increment(x=step, value=1.0, in_place=True)
        block.append_op(
            type="elementwise_mod",
            inputs={"X": [step], "Y": [k]},
            outputs={"Out": [step]},
            attrs={"axis": -1},
        )
        block.append_op(
            type="equal", inputs={"X": [step], "Y": [zero]}, outputs={"Out": [condition]}
        )
        return condition

    def apply_optimize(
        self, loss: Variable, startup_program: Program | None, params_grads: Sequence[Any]
    ) -> list[Operator]:
        """Do `apply_gradients` in the programs of the loss."""
        with program_guard(loss.block.program, startup_program):
            return self.apply_gradients(params_grads)

    def minimize(
        self,
        loss: Variable,
        startup_program: Program | None = None,
        parameter_list: Sequence[Any] | None = None,
        no_grad_set: Any = None,
    ) -> tuple[list[Operator], list[tuple[Any, Any]]]:
        """Append gradients, their sums and updates; return (update ops, pairs)."""
        pairs = self.backward(loss, startup_program, parameter_list, no_grad_set)
        return self.apply_optimize(loss, startup_program, pairs), pairs
