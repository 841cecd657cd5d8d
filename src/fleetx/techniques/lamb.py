"""lamb: Adam with a learning rate per layer, for large batches (https://arxiv.org/abs/1904.00962).

    r = m / (sqrt(v) + eps) + lamb_weight_decay * p;   p -= lr * |p| / |r| * r

with Adam's moments m and v, their bias corrected. Parameters whose name ends with one of
`exclude_from_weight_decay` have no decay.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor
from torch.optim import Adam, Optimizer

from fleetx.kernels.adam import BetaPower
from fleetx.kernels.layerwise import lamb_update
from fleetx.step.program_step import ProgramStep
from fleetx.step.registry import register
from fleetx.step.settings import setting
from fleetx.step.stages import Stage
from fleetx.step.technique import Order, Row, Sizes, Technique
from fleetx.step.train_step import TrainStep
from fleetx.techniques.replaced_optimizer import ReplacedOptimizer


@dataclass(frozen=True, kw_only=True)
class Config:
    """The weight decay of the formula."""

    lamb_weight_decay: float = setting(0.01, number=1, since="2.0")
    """Weight decay."""
    exclude_from_weight_decay: tuple[str, ...] = setting((), number=2, since="2.0", element=str)
    """Ends of the names of parameters without decay."""


def ends_with_any(name: str, ends: Iterable[str]) -> bool:
    """Return whether a parameter's name ends with one of these."""
    return name.endswith(tuple(ends))


class Lamb(ReplacedOptimizer):
    """LAMB as an optimizer of PyTorch.

    `weight_decay` is L2 decay that is added to the gradient before anything else, as Adam has it;
    `lamb_weight_decay` is the decay of the formula.
    """

    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        *,
        weight_decay: float = 0.0,
        lamb_weight_decay: float = 0.01,
        exclude_from_weight_decay: Sequence[str] = (),
        inner: Optimizer | None = None,
    ) -> None:
        defaults = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "lamb_weight_decay": lamb_weight_decay,
            "exclude_from_weight_decay": list(exclude_from_weight_decay),
        }
        super().__init__(params, defaults, inner)
        self._powers: dict[float, BetaPower] = {}

    @staticmethod
    def _matches(name: str, patterns: Iterable[str]) -> bool:
        return ends_with_any(name, patterns)

    def _update(self, group: dict[str, Any]) -> None:
        betas = [float(beta) for beta in group["betas"]]
        for (decay, count, _, dtype), rows in self._rows(group, "lamb_weight_decay").items():
            params, grads, moments1, moments2 = zip(*rows, strict=True)
            # In float32, as in programs, so that both update with the same bits.
            exact = dtype is not torch.float32
            powers = [beta**count if exact else self._power(beta).at(count) for beta in betas]
            lamb_update(
                params,
                grads,
                moments1,
                moments2,
                float(group["lr"]),
                beta1=betas[0],
                beta2=betas[1],
                epsilon=group["eps"],
                decay=decay,
                powers=(powers[0], powers[1]),
            )

    def __getstate__(self) -> dict[str, Any]:
        """Return what a copy needs; powers are found again."""
        return {**super().__getstate__(), "_powers": {}}

    def _power(self, beta: float) -> BetaPower:
        return self._powers.setdefault(beta, BetaPower(beta))

    def _advance(self, parameter: Tensor, state: dict[str, Any]) -> tuple[int, tuple[Tensor, ...]]:
        if not state:
            state["step"] = 0
            state["exp_avg"] = torch.zeros_like(parameter)
            state["exp_avg_sq"] = torch.zeros_like(parameter)
        state["step"] += 1
        return state["step"], (state["exp_avg"], state["exp_avg_sq"])


@register
class LambTechnique(Technique[Config]):
    """Adam with a learning rate per layer, for large batches."""

    name = "lamb"
    order = Order.UPDATE
    since, numbers = "2.0", (8, 109)
    replaces = frozenset({Stage.UPDATE})

    def check_optimizer(self, optimizer: Any) -> None:
        """Reject optimizers other than Adam, and variants that LAMB does not have."""
        from fleetx.static.optimizer import AdamOptimizer, AdamW, LambOptimizer

        is_torch = isinstance(optimizer, Adam)
        others = isinstance(optimizer, AdamW | LambOptimizer)
        if not is_torch and (others or not isinstance(optimizer, AdamOptimizer)):
            raise ValueError(
                f"lamb replaces Adam, not {type(optimizer).__name__}: use "
                "torch.optim.Adam, in programs Adam, or switch off lamb."
            )
        for group in optimizer.param_groups if is_torch else ():
            for key in ("amsgrad", "maximize"):
                if group[key]:
                    raise ValueError(f"lamb has no {key}: leave it out of the optimizer.")
            if group.get("decoupled_weight_decay") and group["weight_decay"]:
                raise ValueError(
                    f"lamb has a weight decay of its own, but {type(optimizer).__name__} has "
                    f"weight_decay={group['weight_decay']:g}: set it to 0, and "
                    "strategy.lamb_configs = {'lamb_weight_decay': ...} instead."
                )

    def change_update(self, step: TrainStep, optimizer: Optimizer) -> Optimizer:
        """Return LAMB with the groups of the script's Adam."""
        assert isinstance(optimizer, Adam)
        lamb = Lamb((), inner=optimizer, **asdict(self.config))
        step.when_named.append(lamb.take_names)
        return lamb

    def change_program(self, step: ProgramStep) -> None:
        """Make the Adam optimizer LAMB, with the correction of bias."""
        from fleetx.static.optimizer.optimizers_of_2x import Lamb as LambOfPrograms

        inner, ends = step.update, self.config.exclude_from_weight_decay
        settings = inner.settings()
        parameters, regularization = settings.pop("parameter_list"), settings.pop("regularization")
        step.update = LambOfPrograms(
            **settings,
            parameters=parameters,
            lamb_weight_decay=self.config.lamb_weight_decay,
            exclude_from_weight_decay_fn=lambda param: ends_with_any(param.name, ends),
            always_adapt=True,
        )
        step.update.regularization = regularization
        step.update.share_state(inner)

    def rows(self, sizes: Sizes) -> list[Row]:
        """Return the row of the update; Adam has the moments too."""
        text = f"weight decay {self.config.lamb_weight_decay:g}"
        return [Row(stage=Stage.UPDATE, technique=self.name, settings=text)]
