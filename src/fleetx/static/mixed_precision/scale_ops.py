"""The ops of loss scaling as layers: unscaling gradients, and updating the scale."""

from __future__ import annotations

from collections.abc import Sequence

from fleetx.static.building.argument_checks import check_type, check_variable_and_dtype
from fleetx.static.building.layer_helper import LayerHelper
from fleetx.static.graph.variable import Variable

_FLOATS = ("float16", "bfloat16", "float32", "float64")


def check_finite_and_unscale(
    x: Sequence[Variable], scale: Variable, name: str | None = None
) -> tuple[Sequence[Variable], Variable]:
    """Unscale gradients in place; return them, and whether any is not finite."""
    _check(x, "check_finite_and_unscale")
    helper = LayerHelper("find_infinite_scale", name=name)
    found = helper.create_variable_for_type_inference(dtype="bool", stop_gradient=True)
    helper.append_op(
        type="check_finite_and_unscale",
        inputs={"X": x, "Scale": scale},
        outputs={"Out": x, "FoundInfinite": found},
    )
    return x, found


def update_loss_scaling(
    x: Sequence[Variable],
    found_inf: Variable,
    prev_loss_scaling: Variable,
    num_good_steps: Variable,
    num_bad_steps: Variable,
    incr_every_n_steps: int,
    decr_every_n_nan_or_inf: int,
    incr_ratio: float,
    decr_ratio: float,
    stop_update: bool = False,
    name: str | None = None,
) -> Sequence[Variable]:
    """Zero the gradients of a bad step, and update the loss scale; return the gradients.

    Args:
        x: the gradients, changed in place.
        found_inf: whether any of them is infinite or NaN.
        prev_loss_scaling, num_good_steps, num_bad_steps: the scale and its counters, updated in
            place.
        incr_every_n_steps: good steps in a row before the scale increases.
        decr_every_n_nan_or_inf: bad steps in a row before it decreases.
        incr_ratio: the factor of an increase.
        decr_ratio: the factor of a decrease.
        stop_update: whether the scale is not updated.
        name: the layer's name.
    """
    _check(x, "update_loss_scaling")
    check_variable_and_dtype(
        prev_loss_scaling, "prev_loss_scaling", _FLOATS[2:], "update_loss_scaling"
    )
    LayerHelper("update_loss_scaling", name=name).append_op(
        type="update_loss_scaling",
        inputs={
            "X": x,
            "FoundInfinite": found_inf,
            "PrevLossScaling": prev_loss_scaling,
            "InGoodSteps": num_good_steps,
            "InBadSteps": num_bad_steps,
        },
        outputs={
            "Out": x,
            "LossScaling": prev_loss_scaling,
            "OutGoodSteps": num_good_steps,
            "OutBadSteps": num_bad_steps,
        },
        attrs={
            "incr_every_n_steps": incr_every_n_steps,
            "decr_every_n_nan_or_inf": decr_every_n_nan_or_inf,
            "incr_ratio": incr_ratio,
            "decr_ratio": decr_ratio,
            "stop_update": stop_update,
        },
    )
    return x


def _check(x: Sequence[Variable], function: str) -> None:
    check_type(x, "x", (list, tuple), function)
    for each in x:
        check_variable_and_dtype(each, "x", _FLOATS, function)
