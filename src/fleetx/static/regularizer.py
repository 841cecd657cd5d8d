"""Weight decay as ops: the gradient of a penalty on the parameters is added to their gradients.

A parameter's own regularizer (from its ParamAttr) takes precedence over the optimizer's.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from fleetx.static.graph.name_scope import name_scope
from fleetx.static.graph.variable import Parameter, Variable
from fleetx.static.protobuf.sparse_gradients import selected_rows

__all__ = ["L1Decay", "L1DecayRegularizer", "L2Decay", "L2DecayRegularizer"]

_log = logging.getLogger(__name__)


class WeightDecayRegularizer:
    """A penalty on parameters; calling it appends the ops of its gradient."""

    def __init__(self, regularization_coeff: float = 0.0, *, coeff: float | None = None) -> None:
        value = regularization_coeff if coeff is None else coeff
        if value is None:
            raise ValueError(
                f"the coefficient of {type(self).__name__} must be a number, not None."
            )
        self._regularization_coeff = value

    @property
    def coeff(self) -> float:
        """The factor of the penalty."""
        return self._regularization_coeff

    _coeff = coeff

    def __call__(self, param: Parameter, grad: Variable, block: Any) -> Variable:
        """Append the ops that compute the penalty's gradient to the block."""
        raise NotImplementedError(f"{type(self).__name__} must define __call__().")

    def _decay_var(self, param: Parameter, block: Any) -> Variable:
        if not isinstance(param, Parameter):
            raise TypeError(f"weight decay applies to Parameters, not {type(param).__name__}.")
        return block.create_var(dtype=param.dtype, shape=param.shape, lod_level=param.lod_level)

    def _append_scale(self, block: Any, source: Variable, target: Variable) -> Variable:
        block.append_op(
            "scale", {"X": source}, {"Out": target}, {"scale": self._regularization_coeff}
        )
        return target


class L2DecayRegularizer(WeightDecayRegularizer):
    """Adds coeff * parameter to the gradient."""

    def __call__(self, param: Parameter, grad: Variable, block: Any) -> Variable:
        """Append scale(parameter)."""
        return self._append_scale(block, param, self._decay_var(param, block))

    def __str__(self) -> str:
        return f"L2Decay, regularization_coeff={self._regularization_coeff:f}"


class L1DecayRegularizer(WeightDecayRegularizer):
    """Adds coeff * sign(parameter) to the gradient."""

    def __call__(self, param: Parameter, grad: Variable, block: Any) -> Variable:
        """Append scale(sign(parameter))."""
        decay = self._decay_var(param, block)
        block.append_op(type="sign", inputs={"X": param}, outputs={"Out": decay})
        return self._append_scale(block, decay, decay)

    def __str__(self) -> str:
        return f"L1Decay, regularization_coeff={self._regularization_coeff:f}"


L1Decay = L1DecayRegularizer
L2Decay = L2DecayRegularizer


def append_regularization_ops(
    parameters_and_grads: Sequence[tuple[Any, Any]], regularization: Any = None
) -> list[tuple[Any, Any]]:
    """Add weight decay to gradients; `regularization` is for parameters without their own."""
    if regularization is not None and any(p.regularizer for p, _ in parameters_and_grads):
        _log.info(
            "some parameters have a regularizer of their own; %s applies to the others only.",
            regularization,
        )
    result = []
    with name_scope("regularization"):
        for param, grad in parameters_and_grads:
            regularizer = param.regularizer or regularization
            if grad is not None and regularizer is not None:
                grad = _decayed(param, grad, regularizer)
            result.append((param, grad))
    return result


def _decayed(param: Any, grad: Any, regularizer: Any) -> Any:
    """Append the ops that add the penalty's gradient; return the sum.

    The sum has the name of the gradient, except of a sparse one: the dense sum gets a new name, as
    in Paddle.
    """
    program = param.block.program
    block = program.current_block()  # of the update, which may be conditional
    with program.optimized_guard([param, grad]):
        decay = regularizer(param, grad, block)
        total = grad
        if grad.name in selected_rows(grad.block):
            name = f"{grad.name}@NEWGRAD@"
            total = block.create_var(name=name, dtype=param.dtype, shape=param.shape)
        block.append_op(type="sum", inputs={"X": [grad, decay]}, outputs={"Out": [total]})
    return total
