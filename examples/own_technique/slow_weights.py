"""A technique that changes parameters after the update: slow weights that follow the fast ones.

Lookahead (https://arxiv.org/abs/1907.08610): every `k_steps` updates the slow weights move part of
the way towards the parameters, which continue from there. The state is in named tensors, so that
it is saved with a module's optimizer and with the persistable variables of a program.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from fleetx.step.named_stages import NamedParameterSync, State
from fleetx.step.program_step import ProgramStep
from fleetx.step.settings import setting
from fleetx.step.stages import Parameters, Stage
from fleetx.step.technique import Order, Row, Sizes, Technique
from fleetx.step.train_step import TrainStep

SLOW, COUNT = "@SLOW", "@COUNT"


@dataclass(frozen=True, kw_only=True)
class Config:
    """The settings of the slow weights."""

    k_steps: int = setting(5, least=1)
    """Updates between two moves."""
    share: float = setting(0.5, above=0)
    """The fraction of the way towards the parameters."""


class SlowWeightsSync(NamedParameterSync):
    """Moves the slow weights, and sets the parameters to them."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self._config = config

    def first_state(self, tensors: Parameters) -> dict[str, Tensor]:
        """Return slow weights and a count of updates for each parameter."""
        slow = {name + SLOW: torch.zeros_like(tensor) for name, tensor in tensors.items()}
        return slow | {name + COUNT: torch.zeros(1, dtype=torch.int64) for name in tensors}

    def sync(self, parameters: Parameters, state: State) -> dict[str, Tensor]:
        """Return the slow weights in every k-th step."""
        changed = {}
        for name, parameter in parameters.items():
            slow, count = state[name + SLOW], state[name + COUNT]
            if not count:
                slow.copy_(parameter)
            count += 1
            if not count % self._config.k_steps:
                changed[name] = slow.lerp_(parameter, self._config.share)
        return changed


class SlowWeights(Technique[Config]):
    """Slow weights follow the parameters."""

    name = "slow_weights"
    order = Order.EXCHANGE
    replaces = frozenset({Stage.PARAM_SYNC})

    def change(self, step: TrainStep | ProgramStep) -> None:
        """Move the slow weights after the update."""
        step.param_sync = SlowWeightsSync(self.config)

    def rows(self, sizes: Sizes) -> list[Row]:
        """Return the memory of the slow weights."""
        return [
            Row(
                stage=Stage.PARAM_SYNC,
                technique=self.name,
                settings=f"every {self.config.k_steps} steps",
                memory=sizes.parameter_bytes,
            )
        ]
