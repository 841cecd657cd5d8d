"""Adagrad, DecayedAdagrad, RMSProp, Adadelta and Ftrl: per-element learning rates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fleetx.exports import export_defined
from fleetx.static.optimizer.accumulators import Accumulator
from fleetx.static.optimizer.base import Optimizer, require


class AdagradOptimizer(Optimizer):
    """m += g * g; p -= lr * g / (sqrt(m) + eps)."""

    type = "adagrad"
    _moment_acc_str = "moment"
    accumulators = (Accumulator("moment", "Moment"),)

    def __init__(
        self,
        learning_rate: Any,
        epsilon: float = 1.0e-6,
        parameter_list: Sequence[Any] | None = None,
        regularization: Any = None,
        grad_clip: Any = None,
        name: str | None = None,
        initial_accumulator_value: float = 0.0,
    ) -> None:
        require(self, epsilon=epsilon)
        super().__init__(learning_rate, parameter_list, regularization, grad_clip, name)
        self._attrs = {"epsilon": epsilon}
        self.initial_accumulator_value = initial_accumulator_value

    def _initial_value(self, accumulator: Accumulator) -> float:
        return self.initial_accumulator_value


class DecayedAdagradOptimizer(Optimizer):
    """Adagrad with a running mean instead of a sum."""

    type = "decayed_adagrad"
    _moment_acc_str = "moment"
    accumulators = (Accumulator("moment", "Moment"),)

    def __init__(
        self,
        learning_rate: Any,
        decay: float = 0.95,
        epsilon: float = 1.0e-6,
        parameter_list: Sequence[Any] | None = None,
        regularization: Any = None,
        grad_clip: Any = None,
        name: str | None = None,
    ) -> None:
        require(self, decay=decay, epsilon=epsilon)
        super().__init__(learning_rate, parameter_list, regularization, grad_clip, name)
        self._attrs = {"epsilon": epsilon, "decay": decay}


class RMSPropOptimizer(Optimizer):
    """Divides gradients by their running RMS, or with `centered` by their standard deviation."""

    type = "rmsprop"
    _momentum_acc_str = "momentum"
    _mean_square_acc_str = "mean_square"
    _mean_grad_acc_str = "mean_grad"
    accumulators = (
        Accumulator("momentum", "Moment"),
        Accumulator("mean_square", "MeanSquare"),
        Accumulator("mean_grad", "MeanGrad"),
    )

    def __init__(
        self,
        learning_rate: Any,
        rho: float = 0.95,
        epsilon: float = 1.0e-6,
        momentum: float = 0.0,
        centered: bool = False,
        parameter_list: Sequence[Any] | None = None,
        regularization: Any = None,
        grad_clip: Any = None,
        name: str | None = None,
    ) -> None:
        require(self, rho=rho, epsilon=epsilon, momentum=momentum)
        super().__init__(learning_rate, parameter_list, regularization, grad_clip, name)
        self._attrs = {"epsilon": epsilon, "decay": rho, "momentum": momentum, "centered": centered}


class AdadeltaOptimizer(Optimizer):
    """Scales gradients by RMS(updates) / RMS(gradients); the learning rate is not used."""

    type = "adadelta"
    _avg_squared_grad_acc_str = "_avg_squared_grad"
    _avg_squared_update_acc_str = "_avg_squared_update"
    accumulators = (
        Accumulator("_avg_squared_grad", "AvgSquaredGrad"),
        Accumulator("_avg_squared_update", "AvgSquaredUpdate"),
    )

    def __init__(
        self,
        learning_rate: Any,
        epsilon: float = 1.0e-6,
        rho: float = 0.95,
        parameter_list: Sequence[Any] | None = None,
        regularization: Any = None,
        grad_clip: Any = None,
        name: str | None = None,
    ) -> None:
        require(self, epsilon=epsilon, rho=rho)
        super().__init__(learning_rate, parameter_list, regularization, grad_clip, name)
        self._attrs = {"epsilon": epsilon, "rho": rho}

    def _op_inputs(self, param_and_grad: Any) -> dict[str, Any]:
        return {}


class FtrlOptimizer(Optimizer):
    """Follow the regularized leader, for sparse linear models."""

    type = "ftrl"
    _squared_acc_str = "squared"
    _linear_acc_str = "linear"
    accumulators = (
        Accumulator("squared", "SquaredAccumulator", out="SquaredAccumOut"),
        Accumulator("linear", "LinearAccumulator", out="LinearAccumOut"),
    )

    def __init__(
        self,
        learning_rate: Any,
        l1: float = 0.0,
        l2: float = 0.0,
        lr_power: float = -0.5,
        parameter_list: Sequence[Any] | None = None,
        regularization: Any = None,
        grad_clip: Any = None,
        name: str | None = None,
    ) -> None:
        super().__init__(learning_rate, parameter_list, regularization, grad_clip, name)
        self._attrs = {"l1": l1, "l2": l2, "lr_power": lr_power}


Adagrad = AdagradOptimizer
DecayedAdagrad = DecayedAdagradOptimizer
RMSProp = RMSPropOptimizer
Adadelta = AdadeltaOptimizer
Ftrl = FtrlOptimizer


export_defined(globals())
