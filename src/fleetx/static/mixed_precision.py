"""Loss scaling around an optimizer: `decorate` with the arguments of Paddle's mixed precision.

The loss is multiplied by a scale, the gradients are divided by it and checked; the gradients of a
step with an infinite or NaN one become zero, and the scale follows the run of good and bad steps.
Computation stays in float32: no ops are cast to lower precision.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from typing import Any

from fleetx.static import unique_name
from fleetx.static.initializer import Constant
from fleetx.static.layer_helper import LayerHelper
from fleetx.static.program import (
    Program,
    default_main_program,
    default_startup_program,
    program_guard,
)
from fleetx.static.variable import Variable

__all__ = ["AutoMixedPrecisionLists", "CustomOpLists", "decorate"]

_WHITE = {"conv2d", "matmul", "matmul_v2", "mul"}
_BLACK = {
    *("exp", "square", "log", "mean", "sum", "cos_sim", "softmax", "softmax_with_cross_entropy"),
    *("sigmoid_cross_entropy_with_logits", "cross_entropy", "cross_entropy2"),
    *("lookup_table", "lookup_table_v2"),
}


class AutoMixedPrecisionLists:
    """Ops fit for lower precision (white) and ops that are not (black), with the user's changes."""

    def __init__(
        self,
        custom_white_list: Iterable[str] | None = None,
        custom_black_list: Iterable[str] | None = None,
        custom_black_varnames: Iterable[str] | None = None,
    ) -> None:
        white, black = set(custom_white_list or ()), set(custom_black_list or ())
        both = white & black
        if both:
            raise ValueError(f"Custom white list overlap custom black list: {sorted(both)}")
        self.white_list = (_WHITE | white) - black
        self.black_list = (_BLACK | black) - white
        self.black_varnames = set(custom_black_varnames or ())


CustomOpLists = AutoMixedPrecisionLists


def _global_state(name: str, value: float, dtype: str) -> Variable:
    helper = LayerHelper("global_var")
    variable = helper.create_global_variable(
        name=unique_name.generate(name), shape=[1], dtype=dtype, persistable=True
    )
    helper.set_variable_initializer(variable, initializer=Constant(value=float(value)))
    return variable


class OptimizerWithMixedPrecision:
    """An optimizer with loss scaling; made by `decorate`."""

    def __init__(
        self,
        optimizer: Any,
        amp_lists: AutoMixedPrecisionLists,
        init_loss_scaling: float,
        use_dynamic_loss_scaling: bool,
        incr_every_n_steps: int,
        decr_every_n_nan_or_inf: int,
        incr_ratio: float,
        decr_ratio: float,
    ) -> None:
        self._optimizer = optimizer
        self._amp_lists = amp_lists
        self._train_program: Program = default_main_program()
        self._init_loss_scaling = float(init_loss_scaling)
        self._use_dynamic_loss_scaling = use_dynamic_loss_scaling
        self._attrs = {
            "incr_every_n_steps": incr_every_n_steps,
            "decr_every_n_nan_or_inf": decr_every_n_nan_or_inf,
            "incr_ratio": incr_ratio,
            "decr_ratio": decr_ratio,
        }
        self._scaled_loss: Variable | None = None
        self._loss_scaling: Any = None
        self._num_good_steps: Variable | None = None
        self._num_bad_steps: Variable | None = None

    def __getattr__(self, name: str) -> Any:
        if name == "_optimizer":  # not yet set: while being copied
            raise AttributeError(name)
        return getattr(self._optimizer, name)

    def _create_state(self) -> None:
        if self._loss_scaling is not None:
            return
        self._loss_scaling = _global_state("loss_scaling", self._init_loss_scaling, "float32")
        if self._use_dynamic_loss_scaling:
            self._num_good_steps = _global_state("num_good_steps", 0, "int32")
            self._num_bad_steps = _global_state("num_bad_steps", 0, "int32")

    def get_loss_scaling(self) -> Variable:
        """Return the variable that holds the loss scale; fetch it to see the value."""
        if self._loss_scaling is None:
            raise RuntimeError("the loss scale exists after minimize or backward: call one first.")
        return self._loss_scaling

    def get_scaled_loss(self) -> Variable | None:
        """Return the scaled loss, or None before backward."""
        return self._scaled_loss

    def _scale(self, loss: Variable) -> Variable:
        from fleetx.static import layers

        return layers.elementwise_mul(loss, self._loss_scaling)

    @property
    def _scales(self) -> bool:
        return self._use_dynamic_loss_scaling or self._init_loss_scaling != 1.0

    def backward(
        self,
        loss: Variable,
        startup_program: Program | None = None,
        parameter_list: Sequence[Any] | None = None,
        no_grad_set: Any = None,
        callbacks: Sequence[Any] | None = None,
    ) -> list[tuple[Any, Any]]:
        """Append the backward pass of the scaled loss; return (parameter, gradient) pairs."""
        self._train_program = loss.block.program
        with program_guard(self._train_program, startup_program):
            self._create_state()
            self._scaled_loss = self._scale(loss) if self._scales else loss
        return self._optimizer.backward(
            self._scaled_loss, startup_program, parameter_list, no_grad_set, callbacks
        )

    def apply_gradients(self, params_grads: Sequence[tuple[Any, Any]]) -> list[Any]:
        """Append unscaling, the check and the updates; return the update ops."""
        grads = [g for _, g in params_grads if g is not None]
        if self._scales and grads:
            with self._train_program._optimized_guard([]):
                self._append_scaling(grads)
        return self._optimizer.apply_gradients(params_grads)

    def _append_scaling(self, grads: list[Variable]) -> None:
        helper = LayerHelper("check_finite_and_unscale")
        found = helper.create_variable_for_type_inference(dtype="bool", stop_gradient=True)
        helper.append_op(
            type="check_finite_and_unscale",
            inputs={"X": grads, "Scale": self._loss_scaling},
            outputs={"Out": grads, "FoundInfinite": found},
        )
        if self._use_dynamic_loss_scaling:
            helper.append_op(
                type="update_loss_scaling",
                inputs={
                    "X": grads,
                    "FoundInfinite": found,
                    "PrevLossScaling": self._loss_scaling,
                    "InGoodSteps": self._num_good_steps,
                    "InBadSteps": self._num_bad_steps,
                },
                outputs={
                    "Out": grads,
                    "LossScaling": self._loss_scaling,
                    "OutGoodSteps": self._num_good_steps,
                    "OutBadSteps": self._num_bad_steps,
                },
                attrs=self._attrs,
            )

    def apply_optimize(
        self, loss: Variable, startup_program: Program | None, params_grads: Sequence[Any]
    ) -> list[Any]:
        """Do `apply_gradients` in the programs of the loss."""
        with program_guard(loss.block.program, startup_program or default_startup_program()):
            return self.apply_gradients(params_grads)

    def minimize(
        self,
        loss: Variable,
        startup_program: Program | None = None,
        parameter_list: Sequence[Any] | None = None,
        no_grad_set: Any = None,
    ) -> tuple[list[Any], list[tuple[Any, Any]]]:
        """Append scaled gradients and updates; return (update ops, pairs)."""
        params_grads = self.backward(loss, startup_program, parameter_list, no_grad_set)
        return self.apply_optimize(loss, startup_program, params_grads), params_grads


def decorate(
    optimizer: Any,
    amp_lists: AutoMixedPrecisionLists | None = None,
    init_loss_scaling: float = 2**15,
    incr_every_n_steps: int = 1000,
    decr_every_n_nan_or_inf: int = 2,
    incr_ratio: float = 2.0,
    decr_ratio: float = 0.8,
    use_dynamic_loss_scaling: bool = True,
    use_pure_fp16: bool = False,
    use_fp16_guard: bool | None = None,
) -> OptimizerWithMixedPrecision:
    """Return the optimizer with loss scaling; ops are not cast, which one warning says."""
    warnings.warn(
        "mixed_precision.decorate scales the loss and checks gradients, but computes in float32.",
        stacklevel=2,
    )
    return OptimizerWithMixedPrecision(
        optimizer,
        AutoMixedPrecisionLists() if amp_lists is None else amp_lists,
        init_loss_scaling,
        use_dynamic_loss_scaling,
        incr_every_n_steps,
        decr_every_n_nan_or_inf,
        incr_ratio,
        decr_ratio,
    )
