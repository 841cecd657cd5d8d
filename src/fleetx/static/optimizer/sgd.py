"""SGD, Momentum, LarsMomentum and Dpsgd."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fleetx.exports import export_defined
from fleetx.static.optimizer.accumulators import Accumulator
from fleetx.static.optimizer.base import Optimizer, require


class SGDOptimizer(Optimizer):
    """p -= lr * g."""

    type = "sgd"


class MomentumOptimizer(Optimizer):
    """v = momentum * v + g; p -= lr * v, or lr * (g + momentum * v) with Nesterov momentum."""

    type = "momentum"
    _velocity_acc_str = "velocity"
    accumulators = (Accumulator("velocity", "Velocity"),)

    def __init__(
        self,
        learning_rate: Any,
        momentum: float,
        parameter_list: Sequence[Any] | None = None,
        use_nesterov: bool = False,
        regularization: Any = None,
        grad_clip: Any = None,
        name: str | None = None,
    ) -> None:
        require(self, momentum=momentum)
        super().__init__(learning_rate, parameter_list, regularization, grad_clip, name)
        self._attrs = {"mu": momentum, "use_nesterov": bool(use_nesterov)}

    def settings(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        more = {"momentum": self._attrs["mu"], "use_nesterov": self._attrs["use_nesterov"]}
        return {**super().settings(), **more}


class LarsMomentumOptimizer(Optimizer):
    """LARS: momentum with a rate per layer, lr * coeff * |p| / (|g| + decay * |p|).

    Without `epsilon` the op is that of Paddle 1.8.5. With it, as in 2.x, parameters whose name
    contains one of `exclude_from_weight_decay` have neither decay nor a trust ratio.
    """

    type = "lars_momentum"
    _velocity_acc_str = "velocity"
    accumulators = (Accumulator("velocity", "Velocity"),)

    def __init__(
        self,
        learning_rate: Any,
        momentum: float,
        lars_coeff: float = 0.001,
        lars_weight_decay: float = 0.0005,
        parameter_list: Sequence[Any] | None = None,
        regularization: Any = None,
        grad_clip: Any = None,
        name: str | None = None,
        exclude_from_weight_decay: Sequence[str] | None = None,
        epsilon: float | None = None,
        multi_precision: bool = False,
        rescale_grad: float = 1.0,
    ) -> None:
        require(self, momentum=momentum)
        super().__init__(learning_rate, parameter_list, regularization, grad_clip, name)
        self._exclude_from_weight_decay = list(exclude_from_weight_decay or ())
        self._attrs = {
            "mu": momentum,
            "lars_coeff": float(lars_coeff),
            "lars_weight_decay": float(lars_weight_decay),
        }
        if epsilon is not None:
            self._attrs["epsilon"] = float(epsilon)
        if rescale_grad != 1.0:
            self._attrs["rescale_grad"] = float(rescale_grad)

    def _op_attrs(self, param: Any) -> dict[str, Any]:
        excluded = any(word in param.name for word in self._exclude_from_weight_decay)
        return {**self._attrs, **({"lars_weight_decay": 0.0} if excluded else {})}


class DpsgdOptimizer(Optimizer):
    """Differentially private SGD: clips gradients, adds noise of scale sigma / batch_size."""

    type = "dpsgd"

    def __init__(
        self,
        learning_rate: Any = 0.001,
        clip: float = 0.9,
        batch_size: float = 0.999,
        sigma: float = 1e-8,
        parameter_list: Sequence[Any] | None = None,
    ) -> None:
        super().__init__(learning_rate, parameter_list)
        numbers = {"clip": clip, "batch_size": batch_size, "sigma": sigma}
        self._attrs = {name: float(value) for name, value in numbers.items()}
        # A seed other than 0 makes the noise reproducible.
        self._seed = 0

    def _op_attrs(self, param: Any) -> dict[str, Any]:
        return {**self._attrs, "seed": self._seed}


SGD = SGDOptimizer
Momentum = MomentumOptimizer
LarsMomentum = LarsMomentumOptimizer
Dpsgd = DpsgdOptimizer


export_defined(globals())
