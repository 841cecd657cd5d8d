"""Dynamic loss scaling, written with layers; `decorate` uses an op for it."""

from __future__ import annotations

from typing import Any

from fleetx.static.graph.variable import Variable
from fleetx.static.layers.compare import increment, less_than
from fleetx.static.layers.creation import fill_constant
from fleetx.static.layers.math import isfinite
from fleetx.static.layers.switch import Switch
from fleetx.static.layers.tensor import assign


def update_loss_scaling(
    is_overall_finite: Variable,
    prev_loss_scaling: Variable,
    num_good_steps: Variable,
    num_bad_steps: Variable,
    incr_every_n_steps: Variable,
    decr_every_n_nan_or_inf: Variable,
    incr_ratio: float,
    decr_ratio: float,
) -> None:
    """Increase the loss scale after enough finite steps in a row, decrease it after others.

    Args:
        is_overall_finite: whether all gradients of this step are finite, a bool of shape [1].
        prev_loss_scaling: the scale; updated, but never below 1 or infinite.
        num_good_steps: the number of finite steps in a row, int32; updated.
        num_bad_steps: the number of others in a row, int32; updated.
        incr_every_n_steps: finite steps in a row before the scale increases.
        decr_every_n_nan_or_inf: others in a row before it decreases.
        incr_ratio: the factor of an increase.
        decr_ratio: the factor of a decrease.
    """
    zero = fill_constant([1], "int32", 0)

    def restart() -> None:
        assign(zero, num_good_steps)
        assign(zero, num_bad_steps)

    with Switch() as finite:
        with finite.case(is_overall_finite):
            _change(
                less_than(incr_every_n_steps, num_good_steps + 1),
                lambda: _raise(prev_loss_scaling, incr_ratio),
                restart,
                (num_good_steps, num_bad_steps),
                zero,
            )
        with finite.default():
            _change(
                less_than(decr_every_n_nan_or_inf, num_bad_steps + 1),
                lambda: _lower(prev_loss_scaling, decr_ratio),
                restart,
                (num_bad_steps, num_good_steps),
                zero,
            )


def _change(due: Variable, change: Any, restart: Any, counts: Any, zero: Variable) -> None:
    """Change the scale and reset the counter if it is due; otherwise count this step."""
    counted, other = counts
    with Switch() as switch:
        with switch.case(due):
            change()
            restart()
        with switch.default():
            increment(counted)
            assign(zero, other)


def _raise(scale: Variable, ratio: float) -> None:
    new = scale * ratio
    with Switch() as switch, switch.case(isfinite(new)):
        assign(new, scale)


def _lower(scale: Variable, ratio: float) -> None:
    new = scale * ratio
    one = fill_constant([1], "float32", 1.0)
    with Switch() as switch:
        with switch.case(less_than(new, one)):
            assign(one, scale)
        with switch.default():
            assign(new, scale)
