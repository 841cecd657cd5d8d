"""What a worker keeps in memory to train a model: the last table of `fleet.explain()`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor
from torch.optim import SGD

from fleetx.comm.divided_tensors import own_part
from fleetx.step.stages import Stage
from fleetx.step.technique import Sizes, Technique
from fleetx.step.train_step import TrainStep
from fleetx.techniques.sharding_state import state_copies


@dataclass(frozen=True, kw_only=True)
class Held:
    """Bytes that one worker keeps; None for what is not known yet."""

    parameters: float
    """With those that are not trained, and buffers."""
    gradients: float
    state: float | None
    """Of the optimizer."""
    techniques: float
    """What techniques keep besides, such as residuals."""
    activations: float | None
    """What forward keeps for backward, at the peak."""

    @property
    def total(self) -> float:
        """All that is known."""
        known = self.parameters + self.gradients + self.techniques
        return known + (self.state or 0.0) + (self.activations or 0.0)


def held_by(step: TrainStep, techniques: Sequence[Technique[Any]], sizes: Sizes) -> Held:
    """Return what this worker keeps to train by a step composed of these techniques."""
    divided, more = dict.fromkeys(Stage, 0.0), 0.0
    for technique in techniques:
        for row in technique.rows(sizes):
            if technique.divides:
                divided[row.stage] += row.memory or 0.0
            else:
                more += row.memory or 0.0
    trained = sizes.parameter_bytes
    activations = step.activations
    has_run = activations is not None and activations.is_known
    return Held(
        parameters=trained + divided[Stage.PARAM_SYNC] + _bytes(_not_trained(step)),
        gradients=trained + divided[Stage.GRAD_SYNC],
        state=_state_bytes(step, trained, divided[Stage.UPDATE], has_run=has_run),
        techniques=more,
        activations=activations.kept if activations is not None and has_run else None,
    )


def _state_bytes(step: TrainStep, trained: int, divided: float, *, has_run: bool) -> float | None:
    """Return the bytes of the optimizer's state: those that it has, or will have if its class is
    known."""
    found = _bytes(v for each in step.update.state.values() for v in each.values())
    copies = state_copies(step.update)
    if found or has_run:
        return found
    return trained * copies + divided if copies or isinstance(step.update, SGD) else None


def _not_trained(step: TrainStep) -> Iterable[Tensor]:
    if step.model is None:
        return []
    rest = [p for p in step.model.parameters() if not p.requires_grad]
    return [*rest, *step.model.buffers()]


def _bytes(values: Iterable[Any]) -> float:
    parts = [own_part(value.detach()) for value in values if isinstance(value, Tensor)]
    return float(sum(part.numel() * part.element_size() for part in parts))
