"""Mixed precision around an optimizer: `decorate` with the arguments of Paddle's.

Ops are cast (see `program_casts`), the loss is scaled, the gradients are unscaled and checked, and
the scale is adapted to the number of good and bad steps in a row. In a step with an infinite or NaN
gradient all gradients become zero and the optimizer still runs, as in Paddle; with `skips_updates`,
which Fleet's amp sets, the whole update is skipped instead.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from fleetx.static import layers, unique_name
from fleetx.static.building.layer_helper import LayerHelper
from fleetx.static.graph.default_programs import default_main_program
from fleetx.static.graph.dtypes import VarType
from fleetx.static.graph.op_registry import SKIP_UPDATE
from fleetx.static.graph.operator import OpRole
from fleetx.static.graph.variable import Variable
from fleetx.static.initializer import Constant
from fleetx.static.mixed_precision.program_casts import (
    AutoMixedPrecisionLists,
    cast_program,
    half_type,
    made_for,
)
from fleetx.static.mixed_precision.scale_ops import check_finite_and_unscale, update_loss_scaling
from fleetx.static.optimizer.wrapped_optimizer import Pairs, ProgramStage, WrappedOptimizer
from fleetx.static.run.place import usual_device

__all__ = ["AutoMixedPrecisionLists", "CustomOpLists", "LossScaling", "decorate"]

CustomOpLists = AutoMixedPrecisionLists

_log = logging.getLogger("fleetx.static")


@dataclass(frozen=True, kw_only=True)
class LossScaling:
    """The settings of the loss scale."""

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
        """Return the settings without loss scaling."""
        return cls(init_loss_scaling=1.0, use_dynamic_loss_scaling=False)

    @property
    def is_on(self) -> bool:
        """Whether the loss is scaled."""
        return self.use_dynamic_loss_scaling or self.init_loss_scaling != 1.0

    def settings(self) -> dict[str, Any]:
        """Return all settings by name."""
        return dataclasses.asdict(self)

    def rules(self) -> dict[str, Any]:
        """Return the settings of dynamic loss scaling."""
        given = self.settings()
        return {k: given[k] for k in given if k.startswith(("incr", "decr"))}


def _global_state(name: str, value: float, dtype: str) -> Variable:
    helper = LayerHelper("global_var")
    variable = helper.create_global_variable(
        name=unique_name.generate(name), shape=[1], dtype=dtype, persistable=True
    )
    helper.set_variable_initializer(variable, initializer=Constant(value=float(value)))
    return variable


class MixedPrecisionStage(ProgramStage):
    """The precision stage of programs: casts, loss scaling, and the check of gradients."""

    def __init__(
        self,
        amp_lists: AutoMixedPrecisionLists,
        scaling: LossScaling,
        half: VarType,
        *,
        skips_updates: bool = False,
        checks_each: bool = False,
        agrees_by: Callable[[], str] = str,
    ) -> None:
        """Create the stage.

        Args:
            amp_lists: which ops run in which precision.
            scaling: the settings of the loss scale.
            half: the half-precision type.
            skips_updates: skip the update in a step with an overflow, instead of updating with
                zeros.
            checks_each: check each gradient by a separate op, as Paddle does with several
                workers.
            agrees_by: returns the op by which workers with different gradients agree on an
                overflow; "" if none is needed.
        """
        self.skips_updates, self.checks_each = skips_updates, checks_each
        self.agrees_by = agrees_by
        self._amp_lists = amp_lists
        self.scaling = scaling
        self._half = half
        self._scaled_loss: Variable | None = None
        self._loss_scaling: Any = None
        self._num_good_steps: Variable | None = None
        self._num_bad_steps: Variable | None = None

    def _create_state(self) -> None:
        if self._loss_scaling is not None:
            return
        self._loss_scaling = _global_state(
            "loss_scaling", self.scaling.init_loss_scaling, "float32"
        )
        if self.scaling.use_dynamic_loss_scaling:
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

    def write_loss(self, loss: Variable) -> Variable:
        """Cast the program; return the scaled loss."""
        self._create_state()
        cast_program(loss.block.program, self._amp_lists, self._half)
        if loss.dtype == self._half:
            loss = loss.astype("float32")
        self._scaled_loss = loss * self._loss_scaling if self.scaling.is_on else loss
        return self._scaled_loss

    @contextmanager
    def updating(self, pairs: Pairs) -> Iterator[Pairs]:
        """Append the unscaling and the check before the updates."""
        grads = [g for _, g in pairs if g is not None]
        if not (self.scaling.is_on and grads):
            yield pairs
            return
        program = default_main_program()
        with program.optimized_guard([]):
            found = self._append_check(grads)
            if self.scaling.use_dynamic_loss_scaling:
                self._append_scale_update(grads, found)
        block = program.current_block()
        start = len(block.ops)
        yield pairs
        if self.skips_updates:
            for op in block.ops[start:]:
                if not op.op_role & OpRole.LRSched:
                    op.inputs[SKIP_UPDATE] = [found.name]
            program.bump_version()

    def _append_check(self, grads: list[Variable]) -> Variable:
        """Append the unscaling of gradients; return whether any is not finite."""
        groups = [[g] for g in grads] if self.checks_each else [grads]
        flags = [check_finite_and_unscale(group, self._loss_scaling)[1] for group in groups]
        found = flags[0] if len(flags) == 1 else layers.reduce_any(layers.concat(flags))
        kind = self.agrees_by()
        if kind:
            number = layers.cast(found, "int32")
            found.block.append_op(
                type=kind,
                inputs={"X": [number]},
                outputs={"Out": [number]},
                attrs={"ring_id": 0, "use_calc_stream": True} if kind.startswith("c_") else {},
            )
            found = layers.cast(number, "bool")
        return found

    def _append_scale_update(self, grads: list[Variable], found: Variable) -> None:
        good, bad = self._num_good_steps, self._num_bad_steps
        assert good is not None  # the scale is dynamic
        assert bad is not None
        update_loss_scaling(grads, found, self._loss_scaling, good, bad, **self.scaling.rules())


class OptimizerWithMixedPrecision(MixedPrecisionStage, WrappedOptimizer):
    """An optimizer with mixed precision; made by `decorate`."""

    slot = "precision"

    def __init__(
        self,
        optimizer: Any,
        amp_lists: AutoMixedPrecisionLists,
        scaling: LossScaling,
        half: VarType = VarType.FP16,
    ) -> None:
        MixedPrecisionStage.__init__(self, amp_lists, scaling, half)
        WrappedOptimizer.__init__(self, optimizer)


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
        init_loss_scaling: the initial loss scale.
        incr_every_n_steps: good steps in a row before the scale grows by `incr_ratio`.
        decr_every_n_nan_or_inf: bad steps in a row before it shrinks by `decr_ratio`.
        incr_ratio: factor by which the scale grows.
        decr_ratio: factor by which it shrinks, never below 1.
        use_dynamic_loss_scaling: change the scale during training.
        use_pure_fp16: not supported; parameters stay float32.
        use_fp16_guard: for `use_pure_fp16`; without effect.
        use_bf16: compute in bfloat16, without a loss scale.
        dtype: 'float16', 'bfloat16' (the same as `use_bf16`), or 'auto': float16 with CUDA, else
            bfloat16, which is much faster on CPUs; 'auto' keeps the loss scale.
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
            "mixed precision uses bfloat16, because float16 is slow on CPUs; "
            "decorate(..., dtype='float16') uses float16 anyway."
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
