"""gradient_clip: bound the gradient that parameters are updated with.

Wraps the update. It acts on the gradient that the update uses: unscaled, merged over the steps of
`gradient_merge` and averaged over all workers (with LocalSGD the worker's own). A script that clips
between `backward()` and `step()` sees only one part of a merged gradient.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fleetx import torch_private
from fleetx.comm.divided_tensors import is_divided, own_part
from fleetx.kernels.gradients import clip_factor
from fleetx.static.clip import GradientClipBase, GradientClipByTorchNorm, GradientClipByValue
from fleetx.step.program_step import ProgramStep
from fleetx.step.registry import register
from fleetx.step.settings import setting
from fleetx.step.stages import Parameters, Stage
from fleetx.step.technique import Order, Row, Sizes, Technique
from fleetx.step.train_step import TrainStep


@dataclass(frozen=True, kw_only=True)
class Config:
    """The limit of gradients: `norm` or `value`."""

    norm: float = setting(0.0, least=0)
    """Largest norm of all gradients together; 0 for none."""
    norm_type: float = setting(2.0, above=0)
    """Order of that norm."""
    value: float = setting(0.0, least=0)
    """Largest magnitude of an element; 0 for none."""


@dataclass
class Clip:
    """Clips the gradients of parameters in place, as torch's functions of these names do."""

    norm: float = 0.0
    """The largest norm of all gradients together; 0 for none."""
    norm_type: float = 2.0
    value: float = 0.0
    """The largest magnitude of an element; 0 for none."""
    last_norm: Tensor | None = None
    """The norm before the last clip, on the device of the gradients."""
    reduce: Callable[[Tensor, str], Tensor] | None = None
    """Reduces a tensor over the workers ("sum" or "max"), if each has a part of the gradients."""
    counts: Callable[[Tensor], bool] | None = None
    """Selects the gradients that this worker counts in the norm, if several workers have the
    same.
    """

    @torch.no_grad()
    def __call__(self, parameters: Parameters) -> None:
        """Clip."""
        given = [p for p in parameters.values() if p.grad is not None]
        values = [(self._counts(p), _values(p)) for p in given]
        gradients = [g for _, g in values if g.numel()]
        if not gradients and (self.value or self.reduce is None):
            return
        if self.value:
            torch_private.foreach_clamp_min_(gradients, -self.value)
            torch_private.foreach_clamp_max_(gradients, self.value)
            return
        factor, self.last_norm = clip_factor(
            [g for counts, g in values if counts and g.numel()],
            self.norm,
            self.norm_type,
            self.reduce,
        )
        for gradient in gradients:
            gradient.mul_(factor.to(gradient.device))

    def _counts(self, parameter: Tensor) -> bool:
        grad = parameter.grad
        return self.counts is None or grad is None or self.counts(grad)

    def as_ops(self) -> GradientClipBase:
        """Return the clip that writes ops into a program."""
        value, norm = self.value, self.norm
        return GradientClipByValue(value) if value else GradientClipByTorchNorm(norm)


def _values(parameter: Tensor) -> Tensor:
    """Return the stored elements of a gradient, as a writable tensor."""
    assert parameter.grad is not None
    if is_divided(parameter.grad):
        return own_part(parameter.grad)  # type: ignore[no-any-return]
    if not parameter.grad.is_sparse:
        return parameter.grad
    parameter.grad = parameter.grad.coalesce()
    return parameter.grad._values()


@register
class GradientClip(Technique[Config]):
    """Clip the merged and averaged gradient before the update."""

    name = "gradient_clip"
    order = Order.CLIP
    numbers = 1003, 1004
    wraps = frozenset({Stage.UPDATE})
    refuses = {
        "dgc": "dgc accumulates and compresses gradients before they are exchanged, so that no "
        "whole gradient is left to clip (dgc_configs['local_clip_norm'] clips what each worker "
        "adds)",
    }

    def _clip(self) -> Clip:
        return Clip(self.config.norm, self.config.norm_type, self.config.value)

    def check(self) -> None:
        """Reject a clip without a limit, or with two."""
        norm, value = self.config.norm, self.config.value
        if bool(norm) == bool(value):
            raise ValueError(
                f"gradient_clip clips by norm or by value, but gradient_clip_configs has norm="
                f"{norm:g} and value={value:g}: set one of them, for example "
                "strategy.gradient_clip_configs = {'norm': 1.0}."
            )
        if self.job.servers is not None:
            self._check_servers(self.job.servers.mode.kind)

    def _check_servers(self, kind: str) -> None:
        """Reject modes without a mean gradient, and clips that servers do not support."""
        if kind != "sync":
            raise ValueError(
                f"gradient_clip clips the mean of all workers' gradients, but there is none in "
                f"{kind} training with parameter servers, where workers do not wait for each "
                "other: set strategy.a_sync = False, or switch off gradient_clip."
            )
        self._check_norm_type("parameter servers")

    def _check_norm_type(self, who: str) -> None:
        """Reject norms other than the Euclidean one."""
        norm_type = self.config.norm_type
        if self.config.norm and norm_type != 2.0:
            raise ValueError(
                f"gradient_clip_configs has norm_type={norm_type:g}, but {who} clip by the "
                "Euclidean norm: set norm_type to 2."
            )

    def check_optimizer(self, optimizer: Any) -> None:
        """Reject programs whose optimizer clips already, or cannot clip."""
        from fleetx.static.optimizer import Optimizer

        if isinstance(optimizer, torch.optim.Optimizer):
            return
        name = type(optimizer).__name__
        if not isinstance(optimizer, Optimizer):
            raise ValueError(
                f"gradient_clip clips in a plain optimizer of programs, not in a {name}: give the "
                "clip to the optimizer inside (grad_clip=...) and switch off gradient_clip."
            )
        if optimizer.settings()["grad_clip"] is not None:
            raise ValueError(
                f"the {name} has a grad_clip already, and the strategy switches on gradient_clip: "
                "remove one of them."
            )
        self._check_norm_type("programs")

    def change(self, step: TrainStep | ProgramStep) -> None:
        """Clip between the exchange of gradients and the update."""
        step.clip = self._clip()

    def rows(self, sizes: Sizes) -> list[Row]:
        """Return the line of the clip."""
        clip = self._clip()
        kind = "" if clip.norm_type == 2.0 else f" (of order {clip.norm_type:g})"
        text = f"each element to {clip.value:g}" if clip.value else f"norm{kind} to {clip.norm:g}"
        return [Row(stage=Stage.UPDATE, technique=self.name, settings=text)]
