"""Batch normalisation and activation in one op that frees the memory of its input."""

from __future__ import annotations

from typing import Any

from fleetx.static.building.argument_checks import check_choice, check_variable_and_dtype
from fleetx.static.building.layer_helper import LayerHelper
from fleetx.static.building.one_op import WIDE
from fleetx.static.errors import ArgumentError
from fleetx.static.graph.variable import Variable
from fleetx.static.layers.norm import append_batch_norm

__all__ = ["inplace_abn"]


def inplace_abn(
    input: Variable,
    act: str | None = None,
    is_test: bool = False,
    momentum: Any = 0.9,
    epsilon: float = 1e-05,
    param_attr: Any = None,
    bias_attr: Any = None,
    data_layout: str = "NCHW",
    name: str | None = None,
    moving_mean_name: str | None = None,
    moving_variance_name: str | None = None,
    do_model_average_for_mean_and_var: bool = True,
    use_global_stats: bool = False,
    act_alpha: float = 1.0,
) -> Variable:
    """Normalise each channel over the batch and apply an activation; the result replaces the input.

    The activation is none, 'identity', 'leaky_relu' or 'elu', with slope or scale `act_alpha`. The
    other arguments are those of `batch_norm`.
    """
    if bias_attr is False:
        raise ArgumentError("bias_attr of inplace_abn must not be False.")
    check_variable_and_dtype(input, "input", WIDE, "inplace_abn")
    check_choice(act, "act", (None, "identity", "leaky_relu", "elu"), "inplace_abn")
    helper = LayerHelper("inplace_abn", param_attr=param_attr, bias_attr=bias_attr, name=name)
    attrs = {
        "epsilon": epsilon,
        "is_test": is_test,
        "use_global_stats": use_global_stats,
        "activation": act or "",
        "alpha": act_alpha,
    }
    return append_batch_norm(
        helper,
        input,
        (moving_mean_name, moving_variance_name),
        do_model_average_for_mean_and_var,
        data_layout,
        attrs,
        momentum,
        in_place=True,
    )
