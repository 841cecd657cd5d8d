"""The optimizers with Paddle 2.x's arguments (`parameters`, `weight_decay`) and formulas.

`weight_decay` is a number (L2) or a regularizer. `multi_precision` and `use_multi_tensor` are
accepted without effect: parameters are float32, and updates are always fused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fleetx.exports import export_defined
from fleetx.static.optimizer import adam, adaptive, sgd
from fleetx.static.optimizer.base import Optimizer as BaseOptimizer
from fleetx.static.regularizer import L2Decay, WeightDecayRegularizer


def _regularizer(weight_decay: Any) -> WeightDecayRegularizer | None:
    if weight_decay is None or isinstance(weight_decay, WeightDecayRegularizer):
        return weight_decay
    if isinstance(weight_decay, int | float) and not isinstance(weight_decay, bool):
        return L2Decay(float(weight_decay))
    raise TypeError(
        f"weight_decay must be a float, L1Decay or L2Decay, not {type(weight_decay).__name__}."
    )


def _parameters(parameters: Any) -> list[Any] | None:
    if parameters is None:
        return None
    if isinstance(parameters, dict) or any(isinstance(p, dict) for p in parameters):
        raise TypeError(
            "parameter groups are not available for programs: give learning rates and regularizers "
            "to single parameters with ParamAttr."
        )
    return list(parameters)


# Arguments that the constructors of 1.x do not have.
_NOT_OF_1X = ("multi_precision", "use_multi_tensor", "rescale_grad", "always_adapt")


def _of_1x(given: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of the 1.x constructor, given the locals() of the 2.x one.

    The 2.x constructor must not have set other locals yet.
    """
    own = ("self", "__class__", "parameters", "weight_decay", *_NOT_OF_1X)
    return {
        **{name: value for name, value in given.items() if name not in own},
        "parameter_list": _parameters(given["parameters"]),
        "regularization": _regularizer(given.get("weight_decay")),
    }


def _in_unit_range(**values: Any) -> None:
    for name, value in values.items():
        if isinstance(value, int | float) and not 0 <= value < 1:
            raise ValueError(f"{name} must be in [0, 1), not {value}.")


class Optimizer(BaseOptimizer):
    """Base of optimizers with 2.x's arguments."""

    def __init__(
        self,
        learning_rate: Any,
        parameters: Sequence[Any] | None = None,
        weight_decay: Any = None,
        grad_clip: Any = None,
        name: str | None = None,
    ) -> None:
        super().__init__(**_of_1x(locals()))


class SGD(sgd.SGDOptimizer):
    """SGD with 2.x's arguments."""

    def __init__(
        self,
        learning_rate: Any = 0.001,
        parameters: Sequence[Any] | None = None,
        weight_decay: Any = None,
        grad_clip: Any = None,
        multi_precision: bool = False,
        name: str | None = None,
    ) -> None:
        super().__init__(**_of_1x(locals()))


class Momentum(sgd.MomentumOptimizer):
    """Momentum with 2.x's arguments; L2 decay is part of the update op."""

    def __init__(
        self,
        learning_rate: Any = 0.001,
        momentum: float = 0.9,
        parameters: Sequence[Any] | None = None,
        use_nesterov: bool = False,
        weight_decay: Any = None,
        grad_clip: Any = None,
        multi_precision: bool = False,
        rescale_grad: float = 1.0,
        use_multi_tensor: bool = False,
        name: str | None = None,
    ) -> None:
        super().__init__(**_of_1x(locals()))
        self._rescale_grad = float(rescale_grad)

    def settings(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        return {**super().settings(), "rescale_grad": self._rescale_grad}

    def append_regularization_ops(
        self, parameters_and_grads: Sequence[Any], regularization: Any = None
    ) -> list[tuple[Any, Any]]:
        """Add weight decay other than L2, which is part of the update op."""
        others = [
            (p, g) for p, g in parameters_and_grads if not isinstance(self._decay(p), L2Decay)
        ]
        super().append_regularization_ops(others, regularization)
        return list(parameters_and_grads)

    def _decay(self, param: Any) -> Any:
        return param.regularizer or self.regularization

    def _op_attrs(self, param: Any) -> dict[str, Any]:
        decay = self._decay(param)
        fused = isinstance(decay, L2Decay)
        return {
            **super()._op_attrs(param),
            "regularization_method": "l2_decay" if fused else "",
            "regularization_coeff": float(decay._coeff) if fused else 0.0,
            "multi_precision": False,
            "rescale_grad": self._rescale_grad,
        }


class Adam(adam.AdamOptimizer):
    """Adam with 2.x's arguments and formula."""

    def __init__(
        self,
        learning_rate: Any = 0.001,
        beta1: Any = 0.9,
        beta2: Any = 0.999,
        epsilon: float = 1e-8,
        parameters: Sequence[Any] | None = None,
        weight_decay: Any = None,
        grad_clip: Any = None,
        lazy_mode: bool = False,
        multi_precision: bool = False,
        use_multi_tensor: bool = False,
        name: str | None = None,
    ) -> None:
        _in_unit_range(beta1=beta1, beta2=beta2)
        super().__init__(**_of_1x(locals()))

    def _op_attrs(self, param: Any) -> dict[str, Any]:
        return {
            **super()._op_attrs(param),
            "multi_precision": False,
            "use_global_beta_pow": False,
        }


AdamW = adam.AdamW


class Adagrad(adaptive.AdagradOptimizer):
    """Adagrad with 2.x's arguments."""

    def __init__(
        self,
        learning_rate: Any,
        epsilon: float = 1.0e-6,
        parameters: Sequence[Any] | None = None,
        weight_decay: Any = None,
        grad_clip: Any = None,
        name: str | None = None,
        initial_accumulator_value: float = 0.0,
    ) -> None:
        super().__init__(**_of_1x(locals()))


class Adadelta(adaptive.AdadeltaOptimizer):
    """Adadelta with 2.x's arguments; the step is multiplied by the learning rate."""

    def __init__(
        self,
        learning_rate: Any = 0.001,
        epsilon: float = 1.0e-6,
        rho: float = 0.95,
        parameters: Sequence[Any] | None = None,
        weight_decay: Any = None,
        grad_clip: Any = None,
        name: str | None = None,
    ) -> None:
        super().__init__(**_of_1x(locals()))

    def _op_inputs(self, param_and_grad: Any) -> dict[str, Any]:
        return {"LearningRate": [self._create_param_lr(param_and_grad)]}


class Adamax(adam.AdamaxOptimizer):
    """Adamax with 2.x's arguments."""

    def __init__(
        self,
        learning_rate: Any = 0.001,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-8,
        parameters: Sequence[Any] | None = None,
        weight_decay: Any = None,
        grad_clip: Any = None,
        name: str | None = None,
    ) -> None:
        _in_unit_range(beta1=beta1, beta2=beta2)
        super().__init__(**_of_1x(locals()))


class RMSProp(adaptive.RMSPropOptimizer):
    """RMSProp with 2.x's arguments."""

    def __init__(
        self,
        learning_rate: Any,
        rho: float = 0.95,
        epsilon: float = 1.0e-6,
        momentum: float = 0.0,
        centered: bool = False,
        parameters: Sequence[Any] | None = None,
        weight_decay: Any = None,
        grad_clip: Any = None,
        name: str | None = None,
    ) -> None:
        super().__init__(**_of_1x(locals()))


class Lamb(adam.LambOptimizer):
    """Lamb with 2.x's arguments and bias correction.

    Parameters without decay keep the plain rate unless `always_adapt` is set.
    """

    accumulators = adam.AdamOptimizer.accumulators

    def __init__(
        self,
        learning_rate: Any = 0.001,
        lamb_weight_decay: float = 0.01,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-6,
        parameters: Sequence[Any] | None = None,
        grad_clip: Any = None,
        exclude_from_weight_decay_fn: Callable[[Any], bool] | None = None,
        multi_precision: bool = False,
        always_adapt: bool = False,
        name: str | None = None,
    ) -> None:
        super().__init__(**_of_1x(locals()))
        self.always_adapt = bool(always_adapt)

    def _op_attrs(self, param: Any) -> dict[str, Any]:
        return {
            **super()._op_attrs(param),
            "always_adapt": self.always_adapt,
            "multi_precision": False,
        }


export_defined(globals(), "AdamW")
