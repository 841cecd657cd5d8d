"""Adam, AdamW, Adamax and Lamb."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from fleetx.exports import export_defined
from fleetx.static.clip import GradientClipBase
from fleetx.static.graph.name_scope import name_scope
from fleetx.static.graph.variable import Variable
from fleetx.static.optimizer.accumulators import Accumulator
from fleetx.static.optimizer.base import Optimizer, OptimizerOf2x, require

if TYPE_CHECKING:
    from fleetx.static.optimizer.learning_rate import Rate


class AdamOptimizer(Optimizer):
    """Adam; `beta1` and `beta2` may be Variables, which are read in every step."""

    type = "adam"
    _moment1_acc_str = "moment1"
    _moment2_acc_str = "moment2"
    _beta1_pow_acc_str = "beta1_pow_acc"
    _beta2_pow_acc_str = "beta2_pow_acc"
    accumulators = (
        Accumulator("moment1", "Moment1"),
        Accumulator("moment2", "Moment2"),
        Accumulator("beta1_pow_acc", "Beta1Pow", shape=(1,)),
        Accumulator("beta2_pow_acc", "Beta2Pow", shape=(1,)),
    )

    def __init__(
        self,
        learning_rate: Any = 0.001,
        beta1: Any = 0.9,
        beta2: Any = 0.999,
        epsilon: float = 1e-8,
        parameter_list: Sequence[Any] | None = None,
        regularization: Any = None,
        grad_clip: Any = None,
        name: str | None = None,
        lazy_mode: bool = False,
    ) -> None:
        require(self, beta1=beta1, beta2=beta2, epsilon=epsilon)
        super().__init__(learning_rate, parameter_list, regularization, grad_clip, name)
        self._beta1 = beta1
        self._beta2 = beta2
        self._epsilon = epsilon
        self._lazy_mode = lazy_mode

    def settings(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        more = {"beta1": self._beta1, "beta2": self._beta2, "epsilon": self._epsilon}
        return {**super().settings(), **more}

    def _initial_value(self, accumulator: Accumulator) -> float:
        if accumulator.slot == "Beta1Pow":
            return 0.9 if isinstance(self._beta1, Variable) else self._beta1
        if accumulator.slot == "Beta2Pow":
            return 0.999 if isinstance(self._beta2, Variable) else self._beta2
        return 0.0

    def _op_inputs(self, param_and_grad: Any) -> dict[str, Any]:
        inputs = super()._op_inputs(param_and_grad)
        for slot, beta in (("Beta1Tensor", self._beta1), ("Beta2Tensor", self._beta2)):
            if isinstance(beta, Variable):
                inputs[slot] = [beta]
        return inputs

    def _op_attrs(self, param: Any) -> dict[str, Any]:
        attrs = {
            "epsilon": self._epsilon,
            "lazy_mode": self._lazy_mode,
            "min_row_size_to_use_multithread": 1000,
        }
        for name, beta in (("beta1", self._beta1), ("beta2", self._beta2)):
            if not isinstance(beta, Variable):
                attrs[name] = beta
        return attrs


class AdamW(OptimizerOf2x, AdamOptimizer):
    """Adam with decoupled weight decay (2.x): parameters shrink by lr * weight_decay each step.

    `apply_decay_param_fun` maps a parameter's name to whether it decays, `lr_ratio` a parameter to
    a factor of its learning rate.
    """

    type = "adamw"

    def __init__(
        self,
        learning_rate: Rate = 0.001,
        beta1: float | Variable = 0.9,
        beta2: float | Variable = 0.999,
        epsilon: float = 1e-8,
        parameters: Sequence[Variable | str] | None = None,
        weight_decay: float = 0.01,
        lr_ratio: Callable[[Any], float] | None = None,
        apply_decay_param_fun: Callable[[str], bool] | None = None,
        grad_clip: GradientClipBase | None = None,
        lazy_mode: bool = False,
        multi_precision: bool = False,
        name: str | None = None,
    ) -> None:
        if isinstance(weight_decay, bool) or not isinstance(weight_decay, int | float):
            raise TypeError(
                f"weight_decay of AdamW must be a float, not {weight_decay.__class__.__name__}."
            )
        super().__init__(
            learning_rate, beta1, beta2, epsilon, parameters, None, grad_clip, name, lazy_mode
        )
        self._weight_decay = float(weight_decay)
        self._lr_ratio = lr_ratio
        self._apply_decay_param_fun = apply_decay_param_fun

    def _op_attrs(self, param: Any) -> dict[str, Any]:
        decays = self._apply_decay_param_fun is None or self._apply_decay_param_fun(param.name)
        return {
            **super()._op_attrs(param),
            "coeff": self._weight_decay,
            "with_decay": bool(decays),
            "lr_ratio": 1.0 if self._lr_ratio is None else float(self._lr_ratio(param)),
        }


class AdamaxOptimizer(Optimizer):
    """Adam with the infinity norm of the gradients."""

    type = "adamax"
    _moment_acc_str = "moment"
    _inf_norm_acc_str = "inf_norm"
    _beta1_pow_acc_str = "beta1_pow_acc"
    accumulators = (
        Accumulator("moment", "Moment"),
        Accumulator("inf_norm", "InfNorm"),
        Accumulator("beta1_pow_acc", "Beta1Pow", out=None, shape=(1,)),
    )

    def __init__(
        self,
        learning_rate: Any = 0.001,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-8,
        parameter_list: Sequence[Any] | None = None,
        regularization: Any = None,
        grad_clip: Any = None,
        name: str | None = None,
    ) -> None:
        require(self, beta1=beta1, beta2=beta2, epsilon=epsilon)
        super().__init__(learning_rate, parameter_list, regularization, grad_clip, name)
        self._attrs = {"beta1": beta1, "beta2": beta2, "epsilon": epsilon}

    def _initial_value(self, accumulator: Accumulator) -> float:
        return float(self._attrs["beta1"]) if accumulator.slot == "Beta1Pow" else 0.0

    def _finish_update(self, block: Any, parameters_and_grads: Sequence[Any]) -> None:
        for param, grad in parameters_and_grads:
            if grad is None or param.trainable is False:
                continue
            power = self._get_accumulator(self._beta1_pow_acc_str, param)
            with param.block.program.optimized_guard([param, grad]), name_scope("adamx"):
                block.append_op(
                    type="scale",
                    inputs={"X": power},
                    outputs={"Out": power},
                    attrs={"scale": self._attrs["beta1"]},
                    stop_gradient=True,
                )


class LambOptimizer(AdamOptimizer):
    """LAMB: Adam's update plus weight decay, with a layer-wise trust ratio.

    As in Paddle 1.8.5, without bias correction. `exclude_from_weight_decay_fn` maps a parameter to
    whether it is excluded from weight decay.
    """

    type = "lamb"
    accumulators = (
        Accumulator("moment1", "Moment1"),
        Accumulator("moment2", "Moment2"),
        Accumulator("beta1_pow_acc", "Beta1Pow", out=None, shape=(1,)),
        Accumulator("beta2_pow_acc", "Beta2Pow", out=None, shape=(1,)),
    )

    def __init__(
        self,
        learning_rate: Any = 0.001,
        lamb_weight_decay: float = 0.01,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-6,
        parameter_list: Sequence[Any] | None = None,
        regularization: Any = None,
        grad_clip: Any = None,
        exclude_from_weight_decay_fn: Callable[[Any], bool] | None = None,
        name: str | None = None,
    ) -> None:
        require(self, lamb_weight_decay=lamb_weight_decay)
        super().__init__(
            learning_rate, beta1, beta2, epsilon, parameter_list, regularization, grad_clip, name
        )
        self._weight_decay = lamb_weight_decay
        self._exclude_from_weight_decay_fn = exclude_from_weight_decay_fn

    def _op_attrs(self, param: Any) -> dict[str, Any]:
        exclude = self._exclude_from_weight_decay_fn
        return {
            "beta1": self._beta1,
            "beta2": self._beta2,
            "epsilon": self._epsilon,
            "weight_decay": 0.0 if exclude is not None and exclude(param) else self._weight_decay,
        }


Adam = AdamOptimizer
Adamax = AdamaxOptimizer
Lamb = LambOptimizer


export_defined(globals())
