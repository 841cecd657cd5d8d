"""A technique that clips: limits the norm of a gradient to a fraction of its parameter's norm.

Adaptive gradient clipping (https://arxiv.org/abs/2102.06171), on whole tensors. The clip has no
state, so it is a plain function of parameters.
"""

from dataclasses import dataclass
from functools import partial

from fleetx.step.program_step import ProgramStep
from fleetx.step.settings import setting
from fleetx.step.stages import Parameters, Stage
from fleetx.step.technique import Order, Row, Sizes, Technique
from fleetx.step.train_step import TrainStep

_SMALLEST = 1e-3


@dataclass(frozen=True, kw_only=True)
class Config:
    """The settings of the clip."""

    share: float = setting(0.01, above=0)
    """The maximum norm of a gradient, as a fraction of its parameter's."""


def clip(parameters: Parameters, share: float) -> None:
    """Scale down gradients that are too large for their parameter."""
    for parameter in parameters.values():
        if parameter.grad is not None:
            limit = share * parameter.detach().norm().clamp(min=_SMALLEST)
            parameter.grad.mul_((limit / parameter.grad.norm()).clamp(max=1.0))


class AdaptiveClip(Technique[Config]):
    """Clip gradients by the norms of their parameters."""

    name = "adaptive_clip"
    order = Order.CLIP
    wraps = frozenset({Stage.UPDATE})

    def change(self, step: TrainStep | ProgramStep) -> None:
        """Clip between the exchange of gradients and the update."""
        step.clip = partial(clip, share=self.config.share)

    def rows(self, sizes: Sizes) -> list[Row]:
        """Return the line of the clip."""
        text = f"to {self.config.share:g} of the parameter's norm"
        return [Row(stage=Stage.UPDATE, technique=self.name, settings=text)]
