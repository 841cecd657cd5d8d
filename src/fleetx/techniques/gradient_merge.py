"""gradient_merge: one update for the gradients of several steps, like one step with a larger batch.

Workers keep the gradients of `k_steps` backward passes to themselves, exchange their mean (without
`avg` their sum) and update once. Communication is 1/k of that without, and a worker never holds the
activations of more than one small batch.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from fleetx import torch_private
from fleetx.comm.divided_tensors import divided_like, is_divided, whole
from fleetx.static.optimizer.gradient_merge_optimizer import MergedRuns
from fleetx.step.gradient_sync import AfterBackward
from fleetx.step.program_step import ProgramStep
from fleetx.step.registry import register
from fleetx.step.settings import setting
from fleetx.step.stages import GradientSync, LocalGradients, Parameters, Stage
from fleetx.step.technique import Order, Row, Sizes, Technique
from fleetx.step.train_step import TrainStep


@dataclass(frozen=True, kw_only=True)
class Config:
    """How many steps are merged, and how."""

    k_steps: int = setting(1, number=1, since="2.0", least=1)
    """Steps whose gradients are merged."""
    avg: bool = setting(True, number=2, since="2.0")
    """Divide the merged gradient by `k_steps`."""


class MergedGradients(GradientSync, MergedRuns):
    """Collects the gradients of `k_steps` backward passes before the inner exchange.

    Gradients are moved out of the parameters in `step`, so a script may call `zero_grad` at any
    time. A script that changes gradients before that changes one part of a sum, which is rarely
    intended: a warning is issued once.
    """

    during_backward = False

    def __init__(
        self,
        inner: GradientSync,
        k_steps: int,
        *,
        avg: bool,
        gather: Callable[[float], list[float]],
    ) -> None:
        """`gather` returns the numbers of all workers that wait for each other in a step."""
        self.inner = inner
        self._gather = gather
        self.k_steps = k_steps
        self.avg = avg
        self._count = 0
        self._merged: dict[str, torch.Tensor] = {}
        self._after_backward: dict[str, tuple[int, int]] = {}
        """Identity and version of the gradients that backward has left."""
        self._watched: set[int] = set()
        self._has_warned = False

    def watch(self, parameters: Parameters) -> None:
        """Record the gradients after backward, to detect whether the script changes them."""
        for name, parameter in parameters.items():
            if parameter.requires_grad and parameter.is_leaf and id(parameter) not in self._watched:
                self._watched.add(id(parameter))
                parameter.register_post_accumulate_grad_hook(partial(self._note, name))

    def _note(self, name: str, parameter: torch.Tensor) -> None:
        if not self._has_warned:
            self._after_backward[name] = _fingerprint(parameter)

    def _warn_if_changed(self, parameters: Parameters) -> None:
        """Warn once if the script has changed a gradient between backward and step."""
        noted, self._after_backward = self._after_backward, {}
        found = ((parameters[name], was) for name, was in noted.items() if name in parameters)
        if any(p.grad is not None and _fingerprint(p) != was for p, was in found):
            self._has_warned = True
            warnings.warn(
                "the script changes gradients between backward() and step() while gradient_merge "
                f"accumulates those of {self.k_steps} steps: a clip such as clip_grad_norm_ then "
                "bounds each part instead of the merged gradient, unlike a step with the large "
                "batch. Remove it and set strategy.gradient_clip = True and "
                "strategy.gradient_clip_configs = {'norm': ...}, which clips the merged gradient.",
                stacklevel=6,
            )

    @torch.no_grad()
    def collect(self, parameters: Parameters) -> bool:
        """Accumulate the gradients; restore their mean in every k-th step."""
        self._warn_if_changed(parameters)
        for name, parameter in parameters.items():
            if parameter.grad is not None:
                self._add(name, parameter.grad)
                parameter.grad = None
        self._count += 1
        if self._count < self.k_steps:
            return False
        self._give_back(parameters, self.k_steps)
        return self.inner.collect(parameters)

    def updates_next(self) -> bool:
        """Return whether the next step is a k-th one."""
        return self._count + 1 >= self.k_steps and self.inner.updates_next()

    @torch.no_grad()
    def flush(self, parameters: Parameters) -> bool:
        """Restore the mean of the accumulated gradients, over any number of steps.

        Workers that exchange gradients may have collected different numbers of steps: each has
        the share that makes their mean the one over all steps of all workers.
        """
        counts = self._gather(self._count)
        if not any(counts):
            return False
        is_local = isinstance(self.inner, LocalGradients)
        divisor = max(1, self._count) if is_local else sum(counts) / len(counts)
        self._give_back(parameters, divisor)
        return self.inner.collect(parameters)

    def _give_back(self, parameters: Parameters, divisor: float) -> None:
        share = 1.0 / divisor if self.avg else 1.0
        if self.avg:
            for gradient in self.inner.others():
                gradient.mul_(share)
        for name, parameter in parameters.items():
            merged = self._merged.pop(name, None)
            if merged is not None:
                merged = divided_like(merged, parameter)  # a loaded one is whole
                parameter.grad = merged.mul_(share) if self.avg else merged
        self._count = 0

    def _add(self, name: str, grad: torch.Tensor) -> None:
        merged = self._merged.get(name)
        if merged is not None and is_divided(grad):  # a loaded one is whole
            merged = self._merged[name] = divided_like(merged, grad)
        if merged is None:
            self._merged[name] = grad
        elif merged.is_sparse and not grad.is_sparse:
            self._merged[name] = grad.add(merged)
        else:
            merged.add_(grad)

    def exchange(self, parameters: Parameters) -> None:
        """Exchange the merged gradients."""
        self.inner.exchange(parameters)

    def innermost(self) -> GradientSync:
        """Return the inner exchange."""
        return self.inner.innermost()

    def others(self) -> list[torch.Tensor]:
        """Return what the inner exchange keeps."""
        return self.inner.others()

    def forget(self) -> None:
        """Discard what the inner exchange keeps."""
        self.inner.forget()

    def begin_as_newcomer(self) -> None:
        """Discard what belongs to the worker whose state was loaded."""
        self.inner.begin_as_newcomer()

    def state_dict(self) -> dict[str, Any]:
        """Return what has been collected so far; gradients of rows are in the inner state."""
        merged = {name: whole(grad).clone() for name, grad in self._merged.items()}
        return {"count": self._count, "merged": merged, "inner": self.inner.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load what `state_dict` returned."""
        self._count = int(state["count"])
        self._merged = {name: grad.clone() for name, grad in state["merged"].items()}
        self.inner.load_state_dict(state["inner"])


def _fingerprint(parameter: torch.Tensor) -> tuple[int, int]:
    """Return what tells whether a gradient has been replaced or changed in place."""
    assert parameter.grad is not None
    return id(parameter.grad), torch_private.version_of(parameter.grad)


@register
class GradientMerge(Technique[Config]):
    """One update for the gradients of several steps."""

    name = "gradient_merge"
    order = Order.COLLECT
    since, numbers = "2.0", (6, 104)
    wraps = frozenset({Stage.GRAD_SYNC})
    differs_by_worker = True

    def check(self) -> None:
        """Reject `k_steps` of 1."""
        if self.config.k_steps < 2:
            raise ValueError(
                "gradient_merge with k_steps=1 merges nothing: set "
                "strategy.gradient_merge_configs = {'k_steps': 4}, or switch it off."
            )

    def change(self, step: TrainStep | ProgramStep) -> None:
        """Accumulate before the exchange; a plain exchange then follows backward instead of
        overlapping.
        """
        inner = step.grad_sync
        if isinstance(step, TrainStep) and type(inner) is GradientSync and self.job.workers > 1:
            # Without groups of their own, shards average as copies do.
            exchange = self.job.exchange("dp", "sharding")
            inner = AfterBackward(exchange, step.precision.message_scale)
        merged = MergedGradients(
            inner, self.config.k_steps, avg=self.config.avg, gather=self.job.gather
        )
        step.grad_sync = merged
        if isinstance(step, TrainStep):
            step.when_named.append(merged.watch)

    def cycle(self) -> int:
        """Return the number of merged steps."""
        return self.config.k_steps

    def share_of_bytes(self) -> float:
        """Return the share of steps in which something is sent."""
        return 1.0 / self.config.k_steps

    def rows(self, sizes: Sizes) -> list[Row]:
        """Return the line of the collected gradients."""
        how = "mean" if self.config.avg else "sum"
        return [
            Row(
                stage=Stage.GRAD_SYNC,
                technique=self.name,
                settings=f"{how} of {self.config.k_steps} steps",
                memory=sizes.parameter_bytes,
            )
        ]
