"""The optimizers with Paddle 2.x's arguments (`parameters`, `weight_decay`) and formulas.

`weight_decay` is a number (L2) or a regularizer. `multi_precision` and `use_multi_tensor` are
accepted without effect: parameters are float32, and updates are always fused.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import wraps
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, cast

from fleetx.exports import export_defined
from fleetx.static.building.adapted import check_arguments
from fleetx.static.clip import GradientClipBase
from fleetx.static.graph.variable import Variable
from fleetx.static.optimizer import adam, adaptive, sgd
from fleetx.static.optimizer.base import OptimizerOf2x
from fleetx.static.regularizer import L2Decay, WeightDecayRegularizer

if TYPE_CHECKING:
    from fleetx.static.optimizer.learning_rate import Rate

_Parameters = Sequence[Variable | str] | None
_Decay = float | WeightDecayRegularizer | None
_Init = TypeVar("_Init", bound=Callable[..., None])


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
            "parameter groups are not supported for programs: set learning rates and regularizers "
            "of single parameters with ParamAttr."
        )
    return list(parameters)


# Arguments that the constructors of 1.x do not have; attributes in 2.x.
_NEW: dict[str, type] = {
    "multi_precision": bool,
    "use_multi_tensor": bool,
    "rescale_grad": float,
    "always_adapt": bool,
}


class _Of2x(OptimizerOf2x):
    """Mixin for a class of 1.x, whose constructor `_of_2x` calls."""

    _in_unit_range: ClassVar[tuple[str, ...]] = ()


def _of_2x(declared: _Init) -> _Init:
    """Return a constructor with the signature of `declared` that calls the one of 1.x."""
    signature = inspect.signature(declared)

    @wraps(declared)
    def __init__(self: _Of2x, *args: Any, **kwargs: Any) -> None:
        check_arguments(signature, type(self).__name__, (self, *args), kwargs)
        bound = signature.bind(self, *args, **kwargs)
        bound.apply_defaults()
        given = dict(bound.arguments)
        del given["self"]
        _check_unit_range({name: given[name] for name in self._in_unit_range})
        for name in _NEW.keys() & given.keys():
            setattr(self, name, _NEW[name](given.pop(name)))
        given["parameter_list"] = _parameters(given.pop("parameters"))
        given["regularization"] = _regularizer(given.pop("weight_decay", None))
        super(_Of2x, self).__init__(**given)

    return cast("_Init", __init__)


def _check_unit_range(values: dict[str, Any]) -> None:
    for name, value in values.items():
        if isinstance(value, int | float) and not 0 <= value < 1:
            raise ValueError(f"{name} must be in [0, 1), not {value}.")


class Optimizer(_Of2x):
    """Base of optimizers with 2.x's arguments."""

    @_of_2x
    def __init__(
        self,
        learning_rate: Rate,
        parameters: _Parameters = None,
        weight_decay: _Decay = None,
        grad_clip: GradientClipBase | None = None,
        name: str | None = None,
    ) -> None: ...


class SGD(_Of2x, sgd.SGDOptimizer):
    """SGD with 2.x's arguments."""

    @_of_2x
    def __init__(
        self,
        learning_rate: Rate = 0.001,
        parameters: _Parameters = None,
        weight_decay: _Decay = None,
        grad_clip: GradientClipBase | None = None,
        multi_precision: bool = False,
        name: str | None = None,
    ) -> None: ...


class Momentum(_Of2x, sgd.MomentumOptimizer):
    """Momentum with 2.x's arguments; L2 decay is part of the update op."""

    rescale_grad: float

    @_of_2x
    def __init__(
        self,
        learning_rate: Rate = 0.001,
        momentum: float = 0.9,
        parameters: _Parameters = None,
        use_nesterov: bool = False,
        weight_decay: _Decay = None,
        grad_clip: GradientClipBase | None = None,
        multi_precision: bool = False,
        rescale_grad: float = 1.0,
        use_multi_tensor: bool = False,
        name: str | None = None,
    ) -> None: ...

    def settings(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        return {**super().settings(), "rescale_grad": self.rescale_grad}

    def append_regularization_ops(
        self, parameters_and_grads: Sequence[Any], regularization: Any = None
    ) -> list[tuple[Any, Any]]:
        """Add weight decay other than L2, which is part of the update op."""
        others = [
            (p, g) for p, g in parameters_and_grads if not isinstance(self._decay(p), L2Decay)
        ]
        # The sum with a sparse gradient is a new, dense variable.
        decayed = {p.name: g for p, g in super().append_regularization_ops(others, regularization)}
        return [(p, decayed.get(p.name, g)) for p, g in parameters_and_grads]

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
            "rescale_grad": self.rescale_grad,
        }


class Adam(_Of2x, adam.AdamOptimizer):
    """Adam with 2.x's arguments and formula."""

    _in_unit_range = ("beta1", "beta2")

    @_of_2x
    def __init__(
        self,
        learning_rate: Rate = 0.001,
        beta1: float | Variable = 0.9,
        beta2: float | Variable = 0.999,
        epsilon: float = 1e-08,
        parameters: _Parameters = None,
        weight_decay: _Decay = None,
        grad_clip: GradientClipBase | None = None,
        lazy_mode: bool = False,
        multi_precision: bool = False,
        use_multi_tensor: bool = False,
        name: str | None = None,
    ) -> None: ...

    def _op_attrs(self, param: Any) -> dict[str, Any]:
        return {
            **super()._op_attrs(param),
            "multi_precision": False,
            "use_global_beta_pow": False,
        }


AdamW = adam.AdamW


class Adagrad(_Of2x, adaptive.AdagradOptimizer):
    """Adagrad with 2.x's arguments."""

    @_of_2x
    def __init__(
        self,
        learning_rate: Rate,
        epsilon: float = 1e-06,
        parameters: _Parameters = None,
        weight_decay: _Decay = None,
        grad_clip: GradientClipBase | None = None,
        name: str | None = None,
        initial_accumulator_value: float = 0.0,
    ) -> None: ...


class Adadelta(_Of2x, adaptive.AdadeltaOptimizer):
    """Adadelta with 2.x's arguments; the step is multiplied by the learning rate."""

    @_of_2x
    def __init__(
        self,
        learning_rate: Rate = 0.001,
        epsilon: float = 1e-06,
        rho: float = 0.95,
        parameters: _Parameters = None,
        weight_decay: _Decay = None,
        grad_clip: GradientClipBase | None = None,
        name: str | None = None,
    ) -> None: ...

    def _op_inputs(self, param_and_grad: Any) -> dict[str, Any]:
        return {"LearningRate": [self._create_param_lr(param_and_grad)]}


class Adamax(_Of2x, adam.AdamaxOptimizer):
    """Adamax with 2.x's arguments."""

    _in_unit_range = ("beta1", "beta2")

    @_of_2x
    def __init__(
        self,
        learning_rate: Rate = 0.001,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-08,
        parameters: _Parameters = None,
        weight_decay: _Decay = None,
        grad_clip: GradientClipBase | None = None,
        name: str | None = None,
    ) -> None: ...


class RMSProp(_Of2x, adaptive.RMSPropOptimizer):
    """RMSProp with 2.x's arguments."""

    @_of_2x
    def __init__(
        self,
        learning_rate: Rate,
        rho: float = 0.95,
        epsilon: float = 1e-06,
        momentum: float = 0.0,
        centered: bool = False,
        parameters: _Parameters = None,
        weight_decay: _Decay = None,
        grad_clip: GradientClipBase | None = None,
        name: str | None = None,
    ) -> None: ...


class Lamb(_Of2x, adam.LambOptimizer):
    """Lamb with 2.x's arguments and bias correction.

    Parameters without decay have no trust ratio unless `always_adapt` is set.
    """

    accumulators = adam.AdamOptimizer.accumulators
    always_adapt: bool

    @_of_2x
    def __init__(
        self,
        learning_rate: Rate = 0.001,
        lamb_weight_decay: float = 0.01,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-06,
        parameters: _Parameters = None,
        grad_clip: GradientClipBase | None = None,
        exclude_from_weight_decay_fn: Callable[[Any], bool] | None = None,
        multi_precision: bool = False,
        always_adapt: bool = False,
        name: str | None = None,
    ) -> None: ...

    def _op_attrs(self, param: Any) -> dict[str, Any]:
        return {
            **super()._op_attrs(param),
            "always_adapt": self.always_adapt,
            "multi_precision": False,
        }


export_defined(globals(), "AdamW")
