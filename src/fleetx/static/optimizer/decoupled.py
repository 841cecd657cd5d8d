"""extend_with_decoupled_weight_decay: decoupled weight decay for any optimizer.

The parameters shrink by `coeff` times their value before the update, independent of the learning
rate.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fleetx.static import layers
from fleetx.static.graph.name_scope import name_scope
from fleetx.static.graph.variable import Variable
from fleetx.static.optimizer.base import Optimizer


class DecoupledWeightDecay:
    """Mixin for optimizer classes: parameters decay independently of their gradients."""

    def __init__(
        self,
        coeff: Any = 0.0,
        apply_decay_param_fun: Callable[[str], bool] | None = None,
        **kwargs: Any,
    ) -> None:
        if not isinstance(coeff, float | Variable):
            raise TypeError(
                f"the weight decay must be a float or a Variable, not {type(coeff).__name__}."
            )
        self._coeff = coeff
        self._apply_decay_param_fun = apply_decay_param_fun
        self._params_name: set[str] = set()
        super().__init__(**kwargs)

    def apply_gradients(self, params_grads: Sequence[Any]) -> list[Any]:
        """Append the decay, then the updates."""
        self._append_decay(params_grads)
        return super().apply_gradients(params_grads)  # type: ignore[misc]

    def _append_decay(self, params_grads: Sequence[Any]) -> None:
        if isinstance(self._coeff, float) and self._coeff == 0.0:
            return
        chosen = self._apply_decay_param_fun
        scaled = []
        for param, grad in params_grads:
            if grad is None or (chosen is not None and not chosen(param.name)):
                continue
            with param.block.program.optimized_guard([param, grad]), name_scope("weight decay"):
                scaled.append((param, grad, param * self._coeff))
            self._params_name.add(param.name)
        for param, grad, decay in scaled:
            with param.block.program.optimized_guard([param, grad]), name_scope("weight decay"):
                layers.assign(input=layers.elementwise_sub(x=param, y=decay), output=param)

    def __str__(self) -> str:
        return "Weight Decay, params: " + ",".join(sorted(self._params_name))


def extend_with_decoupled_weight_decay(base_optimizer: type[Optimizer]) -> type[Optimizer]:
    """Return a class like `base_optimizer` with a first argument `weight_decay`."""
    if not (isinstance(base_optimizer, type) and issubclass(base_optimizer, Optimizer)):
        raise TypeError(
            f"extend_with_decoupled_weight_decay takes an optimizer class, not {base_optimizer!r}."
        )

    class OptimizerWithDecoupledWeightDecay(DecoupledWeightDecay, base_optimizer):  # type: ignore
        """An optimizer with decoupled weight decay."""

        def __init__(
            self,
            weight_decay: Any,
            apply_decay_param_fun: Callable[[str], bool] | None = None,
            **kwargs: Any,
        ) -> None:
            super().__init__(weight_decay, apply_decay_param_fun, **kwargs)

    return OptimizerWithDecoupledWeightDecay
