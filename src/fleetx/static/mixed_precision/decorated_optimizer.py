"""Mixed precision around an optimizer: `decorate` with the arguments of Paddle's.

Ops are cast (see `program_casts`), the loss is multiplied by a scale, the gradients are divided by
it and checked, and the scale follows the run of good and bad steps. In a step with an infinite or
NaN gradient all gradients become zero and the optimizer still runs, as in Paddle; with
`skips_updates`, which Fleet's amp sets, the whole update is left out instead.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from fleetx.static import unique_name
from fleetx.static.building.layer_helper import LayerHelper
from fleetx.static.graph.dtypes import VarType
from fleetx.static.graph.op_registry import SKIP_UPDATE
from fleetx.static.graph.operator import OpRole
from fleetx.static.graph.program import (
    Program,
    default_main_program,
    default_startup_program,
    program_guard,
)
from fleetx.static.graph.variable import Variable
from fleetx.static.initializer import Constant
from fleetx.static.mixed_precision.program_casts import (
    AutoMixedPrecisionLists,
    cast_program,
    half_type,
    made_for,
)
from fleetx.static.run.place import usual_device

__all__ = ["AutoMixedPrecisionLists", "CustomOpLists", "LossScaling", "decorate"]

CustomOpLists = AutoMixedPrecisionLists

_log = logging.getLogger("fleetx.static")


@dataclass(frozen=True, kw_only=True)
class LossScaling:
    """How large the loss scale is, and how it changes."""

    init_loss_scaling: float = 2.0**15
    incr_every_n_steps: int = 1000
    """Good steps in a row before it grows."""
    decr_every_n_nan_or_inf: int = 2
    """Bad steps in a row before it shrinks."""
    incr_ratio: float = 2.0
    decr_ratio: float = 0.8
    use_dynamic_loss_scaling: bool = True

    @classmethod
    def none(cls) -> LossScaling:
        """Return the scaling that leaves the loss as it is."""
        return cls(init_loss_scaling=1.0, use_dynamic_loss_scaling=False)

    @property
    def is_on(self) -> bool:
        """Whether anything is scaled at all."""
        return self.use_dynamic_loss_scaling or self.init_loss_scaling != 1.0

    def settings(self) -> dict[str, Any]:
        """Return all settings by name."""
        return dataclasses.asdict(self)

    def rules(self) -> dict[str, Any]:
        """Return the settings that say how the scale changes."""
        given = self.settings()
        return {k: given[k] for k in given if k.startswith(("incr", "decr"))}


def _global_state(name: str, value: float, dtype: str) -> Variable:
    helper = LayerHelper("global_var")
    variable = helper.create_global_variable(
        name=unique_name.generate(name), shape=[1], dtype=dtype, persistable=True
    )
    helper.set_variable_initializer(variable, initializer=Constant(value=float(value)))
    return variable


class OptimizerWithMixedPrecision:
    """An optimizer with mixed precision; made by `decorate`."""

    skips_updates = False
    """Leave the update out in a step with an overflow, instead of updating with zeros."""
    checks_each = False
    """Check each gradient by an op of its own, as Paddle does with several workers."""
    asks_workers: Callable[[], bool] = staticmethod(bool)
    """Tells whether workers have gradients of their own, so that they must agree on an overflow."""

    def __init__(
        self,
        optimizer: Any,
        amp_lists: AutoMixedPrecisionLists,
        scaling: LossScaling,
        half: VarType = VarType.FP16,
    ) -> None:
        self._optimizer = optimizer
        self._amp_lists = amp_lists
        self._scaling = scaling
        self._half = half
        self._train_program: Program = default_main_program()
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
        self._loss_scaling = _global_state(
            "loss_scaling", self._scaling.init_loss_scaling, "float32"
        )
        if self._scaling.use_dynamic_loss_scaling:
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

    def backward(
        self,
        loss: Variable,
        startup_program: Program | None = None,
        parameter_list: Sequence[Any] | None = None,
        no_grad_set: Any = None,
        callbacks: Sequence[Any] | None = None,
    ) -> list[tuple[Any, Any]]:
        """Cast the program, append the backward pass of the scaled loss; return the pairs
        (parameter, gradient)."""
        self._train_program = loss.block.program
        with program_guard(self._train_program, startup_program):
            self._create_state()
            cast_program(self._train_program, self._amp_lists, self._half)
            if loss.dtype == self._half:
                loss = loss.astype("float32")
            self._scaled_loss = loss * self._loss_scaling if self._scaling.is_on else loss
        return self._optimizer.backward(
            self._scaled_loss, startup_program, parameter_list, no_grad_set, callbacks
        )

    def apply_gradients(self, params_grads: Sequence[tuple[Any, Any]]) -> list[Any]:
        """Append unscaling, the check and the updates; return the update ops."""
        grads = [g for _, g in params_grads if g is not None]
        if not (self._scaling.is_on and grads):
            return self._optimizer.apply_gradients(params_grads)
        with self._train_program.optimized_guard([]):
            found = self._append_check(grads)
            if self._scaling.use_dynamic_loss_scaling:
                self._append_scale_update(grads, found)
        block = self._train_program.current_block()
        start = len(block.ops)
        result = self._optimizer.apply_gradients(params_grads)
        if self.skips_updates:
            for op in block.ops[start:]:
                if not op.op_role & OpRole.LRSched:
                    op.inputs[SKIP_UPDATE] = [found.name]
            self._train_program.bump_version()
        return result

    def _append_check(self, grads: list[Variable]) -> Variable:
        """Append the division of gradients by the scale; return whether any is not finite."""
        from fleetx.static import layers

        groups = [[g] for g in grads] if self.checks_each else [grads]
        flags = [self._append_check_op(group) for group in groups]
        found = flags[0] if len(flags) == 1 else layers.reduce_any(layers.concat(flags))
        if self.asks_workers():
            number = layers.cast(found, "int32")
            found.block.append_op(
                type="c_allreduce_max",
                inputs={"X": [number]},
                outputs={"Out": [number]},
                attrs={"ring_id": 0, "use_calc_stream": True},
            )
            found = layers.cast(number, "bool")
        return found

    def _append_check_op(self, grads: list[Variable]) -> Variable:
        helper = LayerHelper("find_infinite_scale")
        found = helper.create_variable_for_type_inference(dtype="bool", stop_gradient=True)
        helper.append_op(
            type="check_finite_and_unscale",
            inputs={"X": grads, "Scale": self._loss_scaling},
            outputs={"Out": grads, "FoundInfinite": found},
        )
        return found

    def _append_scale_update(self, grads: list[Variable], found: Variable) -> None:
        LayerHelper("update_loss_scaling").append_op(
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
            attrs=self._scaling.rules(),
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
    use_bf16: bool = False,
    *,
    dtype: str = "auto",
) -> OptimizerWithMixedPrecision:
    """Return the optimizer with mixed precision.

    Args:
        optimizer: the optimizer to wrap.
        amp_lists: which ops run in which precision.
        init_loss_scaling: the loss scale at the start.
        incr_every_n_steps: good steps in a row before the scale grows by `incr_ratio`.
        decr_every_n_nan_or_inf: bad steps in a row before it shrinks by `decr_ratio`.
        incr_ratio: factor by which the scale grows.
        decr_ratio: factor by which it shrinks, never below 1.
        use_dynamic_loss_scaling: change the scale during training.
        use_pure_fp16: refused; parameters stay float32.
        use_fp16_guard: belongs to `use_pure_fp16`; without effect.
        use_bf16: compute in bfloat16, without a loss scale.
        dtype: 'float16', 'bfloat16' (the same as `use_bf16`), or 'auto': float16 where there is
            CUDA, else bfloat16, which CPUs compute far faster; the loss scale stays then.
    """
    if use_pure_fp16:
        raise ValueError(
            "use_pure_fp16 keeps parameters in float16, but FleetX keeps them in float32: leave it "
            "False; ops then run in float16 by their lists."
        )
    named = "bfloat16" if use_bf16 else dtype
    half = half_type(made_for(usual_device()) if named == "auto" else named)
    if named == "auto" and half == VarType.BF16:
        _log.warning(
            "mixed precision computes in bfloat16 here, for float16 is slow on CPUs; "
            "decorate(..., dtype='float16') takes float16 all the same."
        )
    scaling = LossScaling.none()
    if half == VarType.FP16 or named == "auto":
        scaling = LossScaling(
            init_loss_scaling=float(init_loss_scaling),
            incr_every_n_steps=incr_every_n_steps,
            decr_every_n_nan_or_inf=decr_every_n_nan_or_inf,
            incr_ratio=incr_ratio,
            decr_ratio=decr_ratio,
            use_dynamic_loss_scaling=use_dynamic_loss_scaling,
        )
    lists = AutoMixedPrecisionLists() if amp_lists is None else amp_lists
    return OptimizerWithMixedPrecision(optimizer, lists, scaling, half)
