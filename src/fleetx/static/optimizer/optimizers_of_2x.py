"""The optimizers with Paddle 2.x's arguments (`parameters`, `weight_decay`) and formulas.

`weight_decay` is a number (L2) or a regularizer. `multi_precision` and `use_multi_tensor` are
accepted without effect: parameters are float32, and updates are always fused.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any, ClassVar

from fleetx.exports import export_defined
from fleetx.static.building.adapted import check_arguments
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


# Parameters that the constructors of 1.x do not have, with their defaults; attributes in 2.x.
_NEW: dict[str, Any] = {
    "multi_precision": False,
    "use_multi_tensor": False,
    "rescale_grad": 1.0,
    "always_adapt": False,
}
_NEW_NAMES = {"parameter_list": "parameters", "regularization": "weight_decay"}


class _Of2x(BaseOptimizer):
    """Mixin before a class of 1.x: its constructor, with 2.x's parameters in their order (`takes`).

    Defaults are those of 1.x unless a subclass gives others.
    """

    _in_unit_range: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls, takes: str = "", **defaults: Any) -> None:
        super().__init_subclass__()
        if takes:
            cls.__init__ = _constructor(cls, takes.split(), defaults)  # type: ignore[method-assign]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Accept what `takes` says."""
        raise TypeError(f"{type(self).__name__} does not say what it takes.")


def _constructor(cls: type[_Of2x], names: list[str], defaults: dict[str, Any]) -> Any:
    behind = cls.__mro__[cls.__mro__.index(_Of2x) + 1]
    old = inspect.signature(behind.__init__)  # type: ignore[misc]
    known = {_NEW_NAMES.get(name, name): p for name, p in old.parameters.items()}
    for name, value in _NEW.items():
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        extra = inspect.Parameter(name, kind, annotation=type(value).__name__, default=value)
        known.setdefault(name, extra)
    parameters = [
        known[n].replace(name=n, default=defaults.get(n, known[n].default)) for n in names
    ]
    signature = old.replace(parameters=[known["self"], *parameters])

    def __init__(self: _Of2x, *args: Any, **kwargs: Any) -> None:
        check_arguments(signature, type(self).__name__, (self, *args), kwargs)
        bound = signature.bind(self, *args, **kwargs)
        bound.apply_defaults()
        given = dict(bound.arguments)
        del given["self"]
        _check_unit_range({name: given[name] for name in self._in_unit_range})
        for name in _NEW.keys() & given.keys():
            setattr(self, name, type(_NEW[name])(given.pop(name)))
        given["parameter_list"] = _parameters(given.pop("parameters"))
        given["regularization"] = _regularizer(given.pop("weight_decay", None))
        super(_Of2x, self).__init__(**given)

    __init__.__signature__ = signature  # type: ignore[attr-defined]
    __init__.__qualname__ = f"{cls.__qualname__}.__init__"
    return __init__


def _check_unit_range(values: dict[str, Any]) -> None:
    for name, value in values.items():
        if isinstance(value, int | float) and not 0 <= value < 1:
            raise ValueError(f"{name} must be in [0, 1), not {value}.")


class Optimizer(_Of2x, takes="learning_rate parameters weight_decay grad_clip name"):
    """Base of optimizers with 2.x's arguments."""


class SGD(
    _Of2x,
    sgd.SGDOptimizer,
    takes="learning_rate parameters weight_decay grad_clip multi_precision name",
    learning_rate=0.001,
):
    """SGD with 2.x's arguments."""


class Momentum(
    _Of2x,
    sgd.MomentumOptimizer,
    takes="learning_rate momentum parameters use_nesterov weight_decay grad_clip multi_precision "
    "rescale_grad use_multi_tensor name",
    learning_rate=0.001,
    momentum=0.9,
):
    """Momentum with 2.x's arguments; L2 decay is part of the update op."""

    rescale_grad: float

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
            "rescale_grad": self.rescale_grad,
        }


class Adam(
    _Of2x,
    adam.AdamOptimizer,
    takes="learning_rate beta1 beta2 epsilon parameters weight_decay grad_clip lazy_mode "
    "multi_precision use_multi_tensor name",
):
    """Adam with 2.x's arguments and formula."""

    _in_unit_range = ("beta1", "beta2")

    def _op_attrs(self, param: Any) -> dict[str, Any]:
        return {
            **super()._op_attrs(param),
            "multi_precision": False,
            "use_global_beta_pow": False,
        }


AdamW = adam.AdamW


class Adagrad(
    _Of2x,
    adaptive.AdagradOptimizer,
    takes="learning_rate epsilon parameters weight_decay grad_clip name initial_accumulator_value",
):
    """Adagrad with 2.x's arguments."""


class Adadelta(
    _Of2x,
    adaptive.AdadeltaOptimizer,
    takes="learning_rate epsilon rho parameters weight_decay grad_clip name",
    learning_rate=0.001,
):
    """Adadelta with 2.x's arguments; the step is multiplied by the learning rate."""

    def _op_inputs(self, param_and_grad: Any) -> dict[str, Any]:
        return {"LearningRate": [self._create_param_lr(param_and_grad)]}


class Adamax(
    _Of2x,
    adam.AdamaxOptimizer,
    takes="learning_rate beta1 beta2 epsilon parameters weight_decay grad_clip name",
):
    """Adamax with 2.x's arguments."""

    _in_unit_range = ("beta1", "beta2")


class RMSProp(
    _Of2x,
    adaptive.RMSPropOptimizer,
    takes="learning_rate rho epsilon momentum centered parameters weight_decay grad_clip name",
):
    """RMSProp with 2.x's arguments."""


class Lamb(
    _Of2x,
    adam.LambOptimizer,
    takes="learning_rate lamb_weight_decay beta1 beta2 epsilon parameters grad_clip "
    "exclude_from_weight_decay_fn multi_precision always_adapt name",
):
    """Lamb with 2.x's arguments and bias correction.

    Parameters without decay keep the plain rate unless `always_adapt` is set.
    """

    accumulators = adam.AdamOptimizer.accumulators
    always_adapt: bool

    def _op_attrs(self, param: Any) -> dict[str, Any]:
        return {
            **super()._op_attrs(param),
            "always_adapt": self.always_adapt,
            "multi_precision": False,
        }


export_defined(globals(), "AdamW")
