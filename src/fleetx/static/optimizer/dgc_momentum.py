"""DGCMomentumOptimizer: momentum whose gradients are compressed before workers exchange them.

Small parameters (below 16384 elements) and those that are not float32 are exchanged whole and
updated by ordinary momentum.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fleetx.kernels.compression import SMALLEST
from fleetx.static.building.layer_helper import LayerHelper
from fleetx.static.clip import GradientClipByNorm
from fleetx.static.graph.default_programs import default_main_program, default_startup_program
from fleetx.static.graph.dtypes import VarType
from fleetx.static.graph.operator import Operator
from fleetx.static.graph.variable import Variable
from fleetx.static.initializer import Constant
from fleetx.static.optimizer.base import Optimizer, require
from fleetx.static.regularizer import L1Decay, L2Decay

COUNTER = "__g_dgc_counter__"


class DGCMomentumOptimizer(Optimizer):
    """Momentum with deep gradient compression; arguments as for `Optimizer`, and its own.

    Args:
        momentum: the factor of the velocity.
        rampup_begin_step: the first step with compressed gradients.
        rampup_step: the number of steps over which `sparsity` ramps up.
        sparsity: the sparsities of the ramp-up: fractions of entries that are not sent.
        use_nesterov: use Nesterov momentum.
        num_trainers: the number of workers, needed with `grad_clip`.
        regularization: L1Decay or L2Decay, added before compression.
        grad_clip: GradientClipByNorm; each worker clips to `clip_norm / sqrt(num_trainers)`.
        keep_rate: scale residuals by the learning rate of the step they come from.
    """

    type = "dgc_momentum"
    exchanges_gradients = True
    _u_velocity_acc_str = "_dgc_u_"
    _v_velocity_acc_str = "_dgc_v_"

    def __init__(
        self,
        learning_rate: Any,
        momentum: float,
        rampup_begin_step: int,
        rampup_step: int = 1,
        sparsity: Sequence[float] = (0.999,),
        parameter_list: Sequence[Any] | None = None,
        use_nesterov: bool = False,
        num_trainers: int | None = None,
        regularization: Any = None,
        grad_clip: Any = None,
        name: str | None = None,
        *,
        keep_rate: bool = False,
    ) -> None:
        require(self, learning_rate=learning_rate, momentum=momentum)
        if rampup_begin_step < 0:
            raise AssertionError(f"rampup_begin_step must be at least 0, not {rampup_begin_step}.")
        super().__init__(learning_rate, parameter_list, regularization, grad_clip, name)
        self._momentum = momentum
        self._use_nesterov = bool(use_nesterov)
        self._schedule = {
            "rampup_begin_step": float(rampup_begin_step),
            "rampup_step": float(rampup_step),
            "sparsity": [float(s) for s in sparsity] or [0.999],
            "keep_rate": keep_rate,
        }
        self._local_clip_norm = 0.0
        if grad_clip is not None:
            if not isinstance(grad_clip, GradientClipByNorm):
                raise TypeError(
                    "grad_clip of DGCMomentumOptimizer must be a GradientClipByNorm, "
                    f"not {grad_clip!r}."
                )
            if not isinstance(num_trainers, int) or num_trainers < 1:
                raise AssertionError(
                    "num_trainers must be the number of workers when grad_clip is given, not "
                    f"{num_trainers!r}."
                )
            self._local_clip_norm = grad_clip.clip_norm * num_trainers**-0.5
        _regular_type(regularization)  # rejects others
        self._step_counter: Variable | None = None

    def apply_gradients(self, params_grads: Sequence[tuple[Any, Any]]) -> list[Operator]:
        """Append exchange and updates to the default program; return the updates.

        Clipping and weight decay of compressed parameters are part of the exchange.
        """
        pairs = sorted((p for p in params_grads if p[1] is not None), key=lambda p: p[0].name)
        large = [pair for pair in pairs if self._is_use_dgc(*pair)]
        small = [pair for pair in pairs if not self._is_use_dgc(*pair)]
        self._append_exchange(large, small)
        small = self.append_regularization_ops(small, self.regularization)
        return self._create_optimization_pass([*large, *small])

    def _is_use_dgc(self, param: Any, grad: Any) -> bool:
        """Return whether a parameter's gradient is compressed."""
        size = 1
        for extent in param.shape:
            size *= abs(extent)
        return size >= SMALLEST and param.dtype == VarType.FP32

    def _create_accumulators(self, block: Any, parameters: Sequence[Any]) -> None:
        """Do nothing: `_append_exchange` has created them."""

    def _append_exchange(self, large: Sequence[Any], small: Sequence[Any]) -> None:
        program = default_main_program()
        self.helper = LayerHelper(self.__class__.__name__)
        for param, _ in [*large, *small]:
            self._add_accumulator(self._u_velocity_acc_str, param)
        vs = [self._add_accumulator(self._v_velocity_acc_str, param) for param, _ in large]
        us = [self._get_accumulator(self._u_velocity_acc_str, param) for param, _ in large]
        self._step_counter = self._counter()
        params, grads, dense = [p for p, _ in large], [g for _, g in large], [g for _, g in small]
        # A parameter's own regularizer takes precedence over the optimizer's.
        decays = [getattr(p, "regularizer", None) or self.regularization for p in params]
        rates = []
        if self._schedule["keep_rate"]:
            self._create_global_learning_rate()
            rates = [self._create_param_lr(pair) for pair in large]
        with program.optimized_guard([]):
            program.current_block().append_op(
                type="dgc",
                inputs={
                    "U": us,
                    "V": vs,
                    "Param": params,
                    "Grad": grads,
                    "Dense": dense,
                    "current_step": [self._step_counter],
                    "LearningRate": rates,
                },
                outputs={"U_out": us, "V_out": vs, "Grad_out": grads, "Dense_out": dense},
                attrs={
                    "m": self._momentum,
                    "use_nesterov": self._use_nesterov,
                    "regular_type": [_regular_type(r) for r in decays],
                    "regular_coeff": [float(getattr(r, "_coeff", 0.0)) for r in decays],
                    "local_clip_norm": self._local_clip_norm,
                    **self._schedule,
                },
            )

    def _counter(self) -> Variable:
        """Return the step counter, 0 in the first run."""
        helper = LayerHelper("global_step_counter")
        block = default_main_program().global_block()
        counter = block.create_var(name=COUNTER, dtype="float32", shape=[1], persistable=True)
        counter.stop_gradient = True
        if not default_startup_program().global_block().has_var(COUNTER):
            helper.set_variable_initializer(counter, initializer=Constant(value=-1.0))
        default_main_program().current_block().append_op(
            type="increment",
            inputs={"X": [counter]},
            outputs={"Out": [counter]},
            attrs={"step": 1.0, "op_role": 16},
            stop_gradient=True,
        )
        return counter

    def _append_optimize_op(self, block: Any, param_and_grad: Any) -> Operator:
        param, grad = param_and_grad
        velocity = self._get_accumulator(self._u_velocity_acc_str, param)
        inputs = {
            "Param": [param],
            "Grad": [grad],
            "Velocity": [velocity],
            "LearningRate": [self._create_param_lr(param_and_grad)],
        }
        outputs = {"ParamOut": [param], "VelocityOut": [velocity]}
        attrs: dict[str, Any] = {"mu": self._momentum, "use_nesterov": self._use_nesterov}
        kind = "momentum"
        if self._is_use_dgc(param, grad):
            kind = self.type
            inputs["current_step"] = [self._step_counter]
            outputs["Grad_out"] = [grad]
            attrs.update(self._schedule)
        return block.append_op(kind, inputs, outputs, attrs, stop_gradient=True)


def _regular_type(regularization: Any) -> int:
    """Return the dgc op's code of a regularizer: 0 none, 1 L1, 2 L2."""
    if regularization is None:
        return 0
    if isinstance(regularization, L1Decay):
        return 1
    if isinstance(regularization, L2Decay):
        return 2
    raise AssertionError(f"regularization must be L1Decay, L2Decay or None, not {regularization}.")


DGCMomentum = DGCMomentumOptimizer
