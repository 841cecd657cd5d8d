"""gradient_merge: one update for the gradients of several steps, like one step with a larger batch.

Workers keep the gradients of `k_steps` backward passes to themselves, exchange their mean (without
`avg` their sum) and update once. Communication is 1/k of that without, and a worker never holds the
activations of more than one small batch.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from fleetx.static.operator import OpRole
from fleetx.static.program import Program
from fleetx.step.gradient_sync import AfterBackward
from fleetx.step.program_step import Pairs, ProgramStep
from fleetx.step.stages import GradientSync, Parameters, Stage
from fleetx.step.technique import Row, Sizes, Technique
from fleetx.step.train_step import TrainStep


class MergedGradients(GradientSync):
    """Collects the gradients of `k_steps` backward passes before the inner exchange.

    Gradients are taken away from the parameters at once, so a script may call `zero_grad` where it
    likes.
    """

    during_backward = False

    def __init__(self, inner: GradientSync, k_steps: int, *, avg: bool) -> None:
        self.inner = inner
        self._k_steps = k_steps
        self._avg = avg
        self._count = 0
        self._merged: dict[str, torch.Tensor] = {}

    @torch.no_grad()
    def collect(self, parameters: Parameters) -> bool:
        """Take the gradients; give their mean back in every k-th step."""
        for name, parameter in parameters.items():
            if parameter.grad is not None:
                self._add(name, parameter.grad)
                parameter.grad = None
        self._count += 1
        if self._count < self._k_steps:
            return False
        for name, parameter in parameters.items():
            merged = self._merged.pop(name, None)
            if merged is not None:
                parameter.grad = merged.div_(self._k_steps) if self._avg else merged
        self._count = 0
        return self.inner.collect(parameters)

    def _add(self, name: str, grad: torch.Tensor) -> None:
        merged = self._merged.get(name)
        if merged is None:
            self._merged[name] = grad
        elif merged.is_sparse and not grad.is_sparse:
            self._merged[name] = grad.add(merged)
        else:
            merged.add_(grad)

    def exchange(self, parameters: Parameters) -> None:
        """Exchange the merged gradients."""
        self.inner.exchange(parameters)

    def state_dict(self) -> dict[str, Any]:
        """Return what has been collected so far."""
        merged = {name: grad.clone() for name, grad in self._merged.items()}
        return {"count": self._count, "merged": merged, "inner": self.inner.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over what `state_dict` returned."""
        self._count = int(state["count"])
        self._merged = {name: grad.clone() for name, grad in state["merged"].items()}
        self.inner.load_state_dict(state["inner"])


class GradientMerge(Technique):
    """Exchanges and updates in every k-th step only."""

    name = "gradient_merge"
    wraps = frozenset({Stage.GRAD_SYNC})
    differs_by_worker = True

    @property
    def _k_steps(self) -> int:
        return int(self.settings["k_steps"])

    def check(self) -> None:
        """Refuse to merge a single step."""
        if self._k_steps < 2:
            raise ValueError(
                "gradient_merge with k_steps=1 merges nothing: set "
                "strategy.gradient_merge_configs = {'k_steps': 4}, or switch it off."
            )

    def change_step(self, step: TrainStep) -> None:
        """Collect in front of the exchange; a plain one follows backward instead of joining it."""
        inner = step.grad_sync
        if type(inner) is GradientSync and self.job.workers > 1:
            inner = AfterBackward(self.job.exchange())
        step.grad_sync = MergedGradients(inner, self._k_steps, avg=self.settings["avg"])

    def change_program(self, step: ProgramStep) -> None:
        """Wrap the optimizer, and exchange where it updates."""
        from fleetx.static.optimizer.gradient_merge import CONDITION, GradientMergeOptimizer

        step.optimizer = GradientMergeOptimizer(
            step.optimizer, self._k_steps, avg=self.settings["avg"]
        )
        step.update_condition = CONDITION
        if step.synchronise is not None:
            step.synchronise = partial(_sum_merged, step.synchronise)

    def share_of_bytes(self) -> float:
        """Return the share of steps in which something is sent."""
        return 1.0 / self._k_steps

    def rows(self, sizes: Sizes) -> list[Row]:
        """Return the line of the collected gradients."""
        how = "mean" if self.settings["avg"] else "sum"
        return [
            Row(
                stage=Stage.GRAD_SYNC,
                technique=self.name,
                settings=f"{how} of {self._k_steps} steps",
                memory=sizes.parameter_bytes,
            )
        ]


def _sum_merged(scale_loss: Callable[..., None], main: Program, pairs: Pairs) -> None:
    """Write the sum over workers into the block of the update instead of behind backward."""
    from fleetx.static.optimizer.gradient_merge import CONDITION, SUFFIX

    scale_loss(main, [])
    update = next(
        op
        for op in main.global_block().ops
        if op.type == "conditional_block" and op.input("Cond") == [CONDITION]
    )
    block = update.attr("sub_block")
    names = [param.name + SUFFIX for param, grad in pairs if grad is not None]
    for i, name in enumerate(names):
        block._insert_op(
            i,
            type="c_allreduce_sum",
            inputs={"X": [name]},
            outputs={"Out": [name]},
            attrs={"ring_id": 0, "use_calc_stream": False, "op_role": OpRole.Backward},
        )
