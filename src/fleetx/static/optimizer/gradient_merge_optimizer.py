"""GradientMergeOptimizer: one update for the gradients of several runs of the program.

Each run adds its gradients to `<parameter>@GRAD@GradientMerge`. In every k-th run a conditional
block clips and decays the sums, updates with them and sets them to zero.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from fleetx.static import layers
from fleetx.static.errors import ArgumentError
from fleetx.static.graph.default_programs import default_main_program, default_startup_program
from fleetx.static.graph.operator import OpRole
from fleetx.static.graph.program import Program
from fleetx.static.graph.variable import Variable
from fleetx.static.layers.control_flow import ConditionalBlock
from fleetx.static.optimizer.wrapped_optimizer import Pairs, ProgramStage, WrappedOptimizer

SUFFIX = "@GRAD@GradientMerge"
CONDITION = "gradient_merge_cond"
COUNT = "gradient_merge_step"
"""The variable that counts the runs since the last update."""


class MergedRuns(ProgramStage):
    """Updates with the mean (or, without `avg`, the sum) of the gradients of `k_steps` runs."""

    k_steps: int
    avg: bool

    @contextmanager
    def updating(self, pairs: Pairs) -> Iterator[Pairs]:
        """Append the sums; yield them in the conditional block of the update."""
        program = default_main_program()
        merged = [(p, _append_sum(p, g)) for p, g in pairs if g is not None]
        with program.optimized_guard([]):
            condition = self._append_count(program.global_block())
            with ConditionalBlock([condition], is_scalar_condition=True).block():
                block = program.current_block()
                for _, total in merged if self.avg else ():
                    block.append_op(
                        type="scale",
                        inputs={"X": [total]},
                        outputs={"Out": [total]},
                        attrs={"scale": 1.0 / self.k_steps, "op_role": OpRole.Backward},
                    )
                yield merged
                for _, total in merged:
                    layers.fill_constant(shape=total.shape, dtype=total.dtype, value=0.0, out=total)

    def _append_count(self, block: Any) -> Variable:
        """Append the counter of runs; return the variable that is true in every k-th run."""

        def number(name: str, value: int) -> Variable:
            return layers.create_global_var([1], value, "int32", persistable=True, name=name)

        k, zero = number("gradient_merge_k", self.k_steps), number("gradient_merge_zero", 0)
        step = number(COUNT, 0)
        condition: Variable = block.create_var(name=CONDITION, shape=[1], dtype="bool")
        layers.increment(x=step, value=1.0, in_place=True)
        block.append_op("elementwise_mod", {"X": [step], "Y": [k]}, {"Out": [step]}, {"axis": -1})
        block.append_op("equal", {"X": [step], "Y": [zero]}, {"Out": [condition]})
        return condition


def _append_sum(param: Any, grad: Variable) -> Variable:
    """Create the sum of a gradient and append the op that adds to it."""
    settings = {"shape": param.shape, "dtype": param.dtype, "persistable": True}
    settings["name"] = param.name + SUFFIX
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


class GradientMergeOptimizer(MergedRuns, WrappedOptimizer):
    """An optimizer that updates in every k-th run."""

    type = "gradient_merge"

    def __init__(self, inner_optimizer: Any, k_steps: int = 1, avg: bool = True) -> None:
        if inner_optimizer is None:
            raise ArgumentError("inner_optimizer of GradientMergeOptimizer is not set.")
        if isinstance(k_steps, bool) or not isinstance(k_steps, int) or k_steps <= 0:
            raise ArgumentError(
                f"k_steps of GradientMergeOptimizer must be a positive integer, not {k_steps!r}."
            )
        super().__init__(inner_optimizer)
        self.k_steps = k_steps
        self.avg = avg

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
        **more: Any,
    ) -> list[tuple[Any, Any]]:
        """Append the backward pass of the inner optimizer; return the pairs."""
        for name, value in (("parameter_list", parameter_list), ("no_grad_set", no_grad_set)):
            if value is not None:
                raise ArgumentError(
                    f"{name} must be None with gradient merge: give parameters to the optimizer "
                    "itself, and set stop_gradient or trainable=False on the others."
                )
        return super().backward(loss, startup_program, **more)
