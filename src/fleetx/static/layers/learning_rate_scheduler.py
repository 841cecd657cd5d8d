"""Learning rates that change with the step, computed by ops in the program itself.

Each function returns a Variable for an optimizer's `learning_rate`. The step in the formulas is the
persistable counter `@LR_DECAY_COUNTER@`, which is incremented in every run.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from fleetx.exports import export_defined
from fleetx.static.building.argument_checks import check_type
from fleetx.static.building.layer_helper import LayerHelper
from fleetx.static.building.spatial_variants import with_first
from fleetx.static.graph.default_programs import default_main_program
from fleetx.static.graph.program import LR_COUNTER_NAME
from fleetx.static.graph.variable import Variable
from fleetx.static.initializer import Constant
from fleetx.static.layers.activations import ceil, cos, exp, floor
from fleetx.static.layers.creation import create_global_var, fill_constant
from fleetx.static.layers.math import elementwise_min
from fleetx.static.layers.switch import Switch
from fleetx.static.layers.tensor import assign, cast


def autoincreased_step_counter(
    counter_name: str | None = None, begin: int = 1, step: int = 1
) -> Variable:
    """Return a persistable counter that is incremented by `step` at the start of every run.

    Args:
        counter_name: its name, `@STEP_COUNTER@` by default; a counter of this name is shared.
        begin: its value in the first run if `step` is 1; it is initialised to begin - 1.
        step: the increment.
    """
    helper = LayerHelper("global_step_counter")
    name = "@STEP_COUNTER@" if counter_name is None else counter_name
    counter, is_new = helper.create_or_get_global_variable(
        name=name, dtype="int64", shape=[1], persistable=True, belong_to_optimizer=True
    )
    if is_new:
        helper.set_variable_initializer(counter, Constant(value=begin - 1, force_cpu=True))
        helper.main_program.global_block().prepend_op(
            "increment", {"X": [counter]}, {"Out": [counter]}, {"step": float(step)}
        )
        counter.stop_gradient = True
    return counter


def decay_step_counter(begin: int = 0) -> Any:
    """Return the step that all schedules of a program share, as a float; it begins at `begin`."""
    return cast(autoincreased_step_counter(LR_COUNTER_NAME, begin=begin, step=1), "float32")


def _part(decay_steps: Any, staircase: bool) -> Any:
    """Return step / decay_steps, rounded down if `staircase`."""
    ratio = decay_step_counter() / decay_steps
    return floor(ratio) if staircase else ratio


def noam_decay(d_model: Any, warmup_steps: Any, learning_rate: Any = 1.0) -> Variable:
    """learning_rate * d_model^-0.5 * min(step^-0.5, step * warmup_steps^-1.5), from step 1."""
    with default_main_program().lr_schedule_guard():
        step = decay_step_counter(1)
        falling = step**-0.5
        rising = (warmup_steps**-1.5) * step
        return learning_rate * (d_model**-0.5) * elementwise_min(falling, rising)


def _decay(
    formula: Callable[[Any, Any, Any], Variable],
    learning_rate: Any,
    decay_steps: Any,
    decay_rate: Any,
    staircase: bool = False,
) -> Variable:
    with default_main_program().lr_schedule_guard():
        return formula(learning_rate, decay_rate, _part(decay_steps, staircase))


exponential_decay = with_first(
    _decay,
    "exponential_decay",
    lambda rate, base, part: rate * base**part,
    doc="learning_rate * decay_rate^(step / decay_steps).",
)
natural_exp_decay = with_first(
    _decay,
    "natural_exp_decay",
    lambda rate, factor, part: rate * exp(-1 * factor * part),
    doc="learning_rate * e^(-decay_rate * step / decay_steps).",
)
inverse_time_decay = with_first(
    _decay,
    "inverse_time_decay",
    lambda rate, factor, part: rate / (1 + factor * part),
    doc="learning_rate / (1 + decay_rate * step / decay_steps).",
)


def polynomial_decay(
    learning_rate: Any,
    decay_steps: Any,
    end_learning_rate: Any = 0.0001,
    power: Any = 1.0,
    cycle: bool = False,
) -> Variable:
    """(learning_rate - end_learning_rate) * (1 - step / decay_steps)^power + end_learning_rate.

    The step stops at `decay_steps`; with `cycle`, `decay_steps` grows to its next multiple instead.
    """
    with default_main_program().lr_schedule_guard():
        step = decay_step_counter()
        if cycle:
            rounds = ceil(step / decay_steps)
            zero, one = fill_constant([1], "float32", 0.0), fill_constant([1], "float32", 1.0)
            with Switch() as switch, switch.case(step == zero):
                assign(input=one, output=rounds)
            decay_steps = decay_steps * rounds
        else:
            limit = fill_constant([1], "float32", float(decay_steps))
            step = elementwise_min(x=step, y=limit)
        left = (1 - step / decay_steps) ** power
        return (learning_rate - end_learning_rate) * left + end_learning_rate


def piecewise_decay(boundaries: Sequence[int], values: Sequence[float]) -> Variable:
    """values[i] before boundaries[i], the last value after the last boundary."""
    if len(values) - len(boundaries) != 1:
        raise ValueError(
            "values of piecewise_decay must be one more than boundaries, "
            f"but there are {len(values)} and {len(boundaries)}."
        )
    with default_main_program().lr_schedule_guard():
        step = decay_step_counter()
        rate = create_global_var([1], 0.0, "float32", persistable=True, name="learning_rate")
        with Switch() as switch:
            for boundary, value in zip(boundaries, values, strict=False):
                limit = fill_constant([1], "float32", float(boundary), force_cpu=True)
                now = fill_constant([1], "float32", float(value))
                with switch.case(step < limit):
                    assign(now, rate)
            last = fill_constant([1], "float32", float(values[-1]))
            with switch.default():
                assign(last, rate)
        return rate


def cosine_decay(learning_rate: Any, step_each_epoch: int, epochs: int) -> Variable:
    """learning_rate * (cos(pi * epoch / epochs) + 1) / 2, with epoch = step // step_each_epoch."""
    check_type(learning_rate, "learning_rate", (float, Variable), "cosine_decay")
    with default_main_program().lr_schedule_guard():
        epoch = floor(decay_step_counter() / step_each_epoch)
        return learning_rate * 0.5 * (cos(epoch * math.pi / epochs) + 1)


def linear_lr_warmup(learning_rate: Any, warmup_steps: int, start_lr: Any, end_lr: Any) -> Variable:
    """Interpolate linearly from start_lr to end_lr, then use `learning_rate`."""
    dtype = learning_rate.dtype if isinstance(learning_rate, Variable) else "float32"
    span = float(end_lr) - float(start_lr)
    with default_main_program().lr_schedule_guard():
        rate = create_global_var([1], 0.0, dtype, persistable=True, name="learning_rate_warmup")
        step = decay_step_counter()
        with Switch() as switch:
            with switch.case(step < warmup_steps):
                assign(start_lr + span * (step / float(warmup_steps)), rate)
            with switch.default():
                if not isinstance(learning_rate, Variable):
                    learning_rate = fill_constant([1], dtype, float(learning_rate))
                assign(learning_rate, rate)
        return rate


def linear_warmup_decay(learning_rate: Any, warmup_steps: int, num_train_steps: int) -> Variable:
    """Warm up linearly from zero to `learning_rate`, then decay linearly to 0 at `num_train_steps`.

    The decay follows the line from `learning_rate` at step 0, as in Paddle's BERT.
    """
    falling = polynomial_decay(learning_rate, num_train_steps, end_learning_rate=0.0, power=1.0)
    return linear_lr_warmup(falling, warmup_steps, 0.0, learning_rate)


export_defined(globals())
