"""lars: momentum with a learning rate per layer, for large batches (https://arxiv.org/abs/1708.03888).

    l = lr * lars_coeff * |p| / (|g| + lars_weight_decay * |p| + epsilon)
    v = momentum * v + l * (g + lars_weight_decay * p);   p -= v

Parameters whose name contains one of `exclude_from_weight_decay` have no decay, and l = lr. The
learning rate is inside the velocity, as in Paddle: a change of it acts on new gradients only.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor
from torch.optim import SGD, Optimizer

from fleetx.kernels.layerwise import lars_update
from fleetx.step.program_step import ProgramStep
from fleetx.step.registry import register
from fleetx.step.settings import setting
from fleetx.step.stages import Stage
from fleetx.step.technique import Order, Row, Sizes, Technique
from fleetx.step.train_step import TrainStep
from fleetx.techniques.replaced_optimizer import ReplacedOptimizer


@dataclass(frozen=True, kw_only=True)
class Config:
    """The constants of the formula."""

    lars_coeff: float = setting(0.001, number=1, since="2.0")
    """Trust coefficient."""
    lars_weight_decay: float = setting(0.0005, number=2, since="2.0")
    """Weight decay."""
    epsilon: float = setting(0.0, number=3, since="2.0")
    """Added to the denominator."""
    exclude_from_weight_decay: tuple[str, ...] = setting((), number=4, since="2.0", element=str)
    """Parts of the names of parameters without decay."""


class Lars(ReplacedOptimizer):
    """LARS as an optimizer of PyTorch.

    `weight_decay` is L2 decay that is added to the gradient before anything else, as SGD has it;
    `lars_weight_decay` is the decay of the formula.
    """

    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        momentum: float = 0.9,
        *,
        weight_decay: float = 0.0,
        lars_coeff: float = 0.001,
        lars_weight_decay: float = 0.0005,
        epsilon: float = 0.0,
        exclude_from_weight_decay: Sequence[str] = (),
        inner: Optimizer | None = None,
    ) -> None:
        defaults = {
            "lr": lr,
            "momentum": momentum,
            "weight_decay": weight_decay,
            "lars_coeff": lars_coeff,
            "lars_weight_decay": lars_weight_decay,
            "epsilon": epsilon,
            "exclude_from_weight_decay": list(exclude_from_weight_decay),
        }
        super().__init__(params, defaults, inner)

    @staticmethod
    def _matches(name: str, patterns: Iterable[str]) -> bool:
        return any(pattern in name for pattern in patterns)

    def _update(self, group: dict[str, Any]) -> None:
        for (decay, *_), rows in self._rows(group, "lars_weight_decay").items():
            params, grads, velocities = zip(*rows, strict=True)
            lars_update(
                params,
                grads,
                velocities,
                float(group["lr"]),
                mu=group["momentum"],
                coeff=group["lars_coeff"],
                decay=decay,
                epsilon=group["epsilon"],
            )

    def _advance(self, parameter: Tensor, state: dict[str, Any]) -> tuple[int, tuple[Tensor, ...]]:
        if not state:
            state["velocity"] = torch.zeros_like(parameter)
        return 0, (state["velocity"],)


@register
class LarsTechnique(Technique[Config]):
    """Momentum with a learning rate per layer, for large batches."""

    name = "lars"
    order = Order.UPDATE
    since, numbers = "2.0", (7, 108)
    replaces = frozenset({Stage.UPDATE})

    def check_optimizer(self, optimizer: Any) -> None:
        """Reject optimizers other than momentum, and variants that LARS does not have."""
        from fleetx.static.optimizer import MomentumOptimizer

        is_torch = isinstance(optimizer, SGD)
        if not is_torch and not isinstance(optimizer, MomentumOptimizer):
            raise ValueError(
                f"lars replaces momentum, not {type(optimizer).__name__}: use "
                "torch.optim.SGD(..., momentum=0.9), in programs Momentum, or switch off lars."
            )
        if not is_torch:
            if optimizer.settings()["use_nesterov"]:
                self.job.unsupported("use_nesterov", "lars has no Nesterov variant")
            return
        for group in optimizer.param_groups:
            if not group["momentum"]:
                raise ValueError("lars needs momentum: use torch.optim.SGD(..., momentum=0.9).")
            for key in ("dampening", "nesterov", "maximize"):
                if group[key]:
                    raise ValueError(
                        f"lars has no {key}, which the optimizer sets to {group[key]}: "
                        "leave it out."
                    )

    def change_update(self, step: TrainStep, optimizer: Optimizer) -> Optimizer:
        """Return LARS with the groups of the script's SGD."""
        assert isinstance(optimizer, SGD)
        lars = Lars((), inner=optimizer, **asdict(self.config))
        step.when_named.append(lars.take_names)
        return lars

    def change_program(self, step: ProgramStep) -> None:
        """Make the momentum optimizer LARS."""
        from fleetx.static.optimizer import LarsMomentumOptimizer

        inner = step.update
        settings = inner.settings()
        del settings["use_nesterov"]  # which check_optimizer has dealt with
        step.update = LarsMomentumOptimizer(**settings, **asdict(self.config))
        step.update.share_state(inner)

    def rows(self, sizes: Sizes) -> list[Row]:
        """Return the row of the update; momentum has the velocity too."""
        text = f"coefficient {self.config.lars_coeff:g}"
        return [Row(stage=Stage.UPDATE, technique=self.name, settings=text)]
