"""Normalisation layers."""

from __future__ import annotations

import math
import warnings
from typing import Any

from fleetx.exports import export_defined
from fleetx.static import initializer
from fleetx.static.building.argument_checks import (
    check_choice,
    check_type,
    check_variable_and_dtype,
)
from fleetx.static.building.layer_helper import LayerHelper
from fleetx.static.building.one_op import HALF_TOO, WIDE
from fleetx.static.building.op_layer import changed, checked, op_layer
from fleetx.static.building.param_attr import ParamAttr
from fleetx.static.errors import ArgumentError, ShapeError
from fleetx.static.graph.dtypes import VarType
from fleetx.static.graph.variable import Variable


def _refuse_false(attr: Any, name: str, layer: str) -> None:
    if attr is False:
        raise ArgumentError(f"{name} of {layer} must not be False.")


def _scale_and_bias(
    helper: LayerHelper, shape: list[int], dtype: Any, *, scale: bool = True, bias: bool = True
) -> dict[str, Any]:
    """Create the scale and shift parameters of a normalisation."""
    made = {}
    if scale:
        made["Scale"] = helper.weight(shape, dtype, initializer.Constant(1.0))
    if bias:
        made["Bias"] = helper.bias(shape, dtype)
    return made


def batch_norm(
    input: Variable,
    act: str | None = None,
    is_test: bool = False,
    momentum: Any = 0.9,
    epsilon: float = 1e-05,
    param_attr: Any = None,
    bias_attr: Any = None,
    data_layout: str = "NCHW",
    in_place: bool = False,
    name: str | None = None,
    moving_mean_name: str | None = None,
    moving_variance_name: str | None = None,
    do_model_average_for_mean_and_var: bool = True,
    use_global_stats: bool = False,
) -> Variable:
    """Normalise each channel over the batch, then scale and shift it.

    The running mean and variance, used for inference, are persistable variables, updated in each
    training step: new = momentum * old + (1 - momentum) * batch.
    """
    _refuse_false(bias_attr, "bias_attr", "batch_norm")
    check_variable_and_dtype(input, "input", HALF_TOO, "batch_norm")
    helper = LayerHelper(
        "batch_norm", act=act, param_attr=param_attr, bias_attr=bias_attr, name=name
    )
    out = append_batch_norm(
        helper,
        input,
        (moving_mean_name, moving_variance_name),
        do_model_average_for_mean_and_var,
        data_layout,
        {
            "epsilon": epsilon,
            "is_test": is_test,
            "fuse_with_relu": False,
            "use_global_stats": use_global_stats,
        },
        momentum,
        in_place,
    )
    return helper.append_activation(out)


def append_batch_norm(
    helper: LayerHelper,
    input: Variable,
    statistics_names: tuple[str | None, str | None],
    do_model_average: bool,
    data_layout: str,
    attrs: dict[str, Any],
    momentum: Any,
    in_place: bool,
) -> Variable:
    """Create scale, bias, mean and variance, append the helper's op, return its output."""
    layer = helper.layer_type
    check_choice(data_layout, "data_layout", ("NCHW", "NHWC"), layer)
    dtype = VarType.FP32 if input.dtype == VarType.FP16 else input.dtype
    shape = [input.shape[1 if data_layout == "NCHW" else -1]]
    inputs = {"X": input, **_scale_and_bias(helper, shape, dtype)}
    statistics = []
    for stat_name, value in zip(statistics_names, (0.0, 1.0), strict=True):
        attr = ParamAttr(
            name=stat_name,
            initializer=initializer.Constant(value),
            trainable=False,
            do_model_average=do_model_average,
        )
        statistic = helper.create_parameter(attr=attr, shape=shape, dtype=dtype)
        statistic.stop_gradient = True
        statistics.append(statistic)
    mean, variance = statistics
    outputs = statistics_outputs(helper, mean, variance, dtype)
    out = input if in_place else helper.create_variable_for_type_inference(dtype)
    inputs |= {"Mean": mean, "Variance": variance}
    attrs = {**attrs, "data_layout": data_layout}
    if isinstance(momentum, Variable):
        inputs["MomentumTensor"] = momentum
    else:
        attrs["momentum"] = momentum
    helper.append_op(type=layer, inputs=inputs, outputs={"Y": out, **outputs}, attrs=attrs)
    return out


def statistics_outputs(
    helper: LayerHelper, mean: Variable, variance: Variable, dtype: Any
) -> dict[str, Variable]:
    """Return the outputs of batch norm for statistics: running ones, and those of the batch."""
    saved = [helper.create_variable_for_type_inference(dtype, stop_gradient=True) for _ in range(2)]
    outputs = {"MeanOut": mean, "VarianceOut": variance}
    return {**outputs, "SavedMean": saved[0], "SavedVariance": saved[1]}


def layer_norm(
    input: Variable,
    scale: bool = True,
    shift: bool = True,
    begin_norm_axis: int = 1,
    epsilon: float = 1e-05,
    param_attr: Any = None,
    bias_attr: Any = None,
    act: str | None = None,
    name: str | None = None,
) -> Variable:
    """Normalise each row over the dimensions from `begin_norm_axis` on, then scale and shift."""
    helper = LayerHelper(
        "layer_norm", param_attr=param_attr, bias_attr=bias_attr, act=act, name=name
    )
    check_variable_and_dtype(input, "input", WIDE, "layer_norm")
    for used, attr, name, switch in (
        (scale, param_attr, "param_attr", "scale"),
        (shift, bias_attr, "bias_attr", "shift"),
    ):
        if used:
            _refuse_false(attr, name, f"layer_norm with {switch}")
        elif attr:
            warnings.warn(f"{name} of layer_norm has no effect without {switch}.", stacklevel=2)
    shape = [math.prod(input.shape[begin_norm_axis:])]
    parameters = _scale_and_bias(helper, shape, input.dtype, scale=scale, bias=shift)
    *_, out = helper.outputs_of(
        "layer_norm",
        {"X": input, **parameters},
        {"epsilon": epsilon, "begin_norm_axis": begin_norm_axis},
        no_grad="Mean Variance",
        **dict.fromkeys(("Mean", "Variance", "Y"), input.dtype),
    )
    return helper.append_activation(out)


def group_norm(
    input: Variable,
    groups: int,
    epsilon: float = 1e-05,
    param_attr: Any = None,
    bias_attr: Any = None,
    act: str | None = None,
    data_layout: str = "NCHW",
    name: str | None = None,
) -> Variable:
    """Normalise groups of channels of each image; scale and shift where attributes are given."""
    helper = LayerHelper(
        "group_norm", param_attr=param_attr, bias_attr=bias_attr, act=act, name=name
    )
    check_variable_and_dtype(input, "input", WIDE, "group_norm")
    check_choice(data_layout, "data_layout", ("NCHW", "NHWC"), "group_norm")
    if groups < 1:
        raise ShapeError(f"groups of group_norm must be greater than zero, but is {groups}.")
    dtype = input.dtype
    shape = [input.shape[1 if data_layout == "NCHW" else -1]]
    given = {"scale": bool(param_attr), "bias": bool(bias_attr)}
    inputs = {"X": input, **_scale_and_bias(helper, shape, dtype, **given)}
    mean = helper.create_variable(dtype=dtype, stop_gradient=True)
    variance = helper.create_variable(dtype=dtype, stop_gradient=True)
    out = helper.create_variable(dtype=dtype)
    helper.append_op(
        type="group_norm",
        inputs=inputs,
        outputs={"Y": out, "Mean": mean, "Variance": variance},
        attrs={"epsilon": epsilon, "groups": groups, "data_layout": data_layout},
    )
    return helper.append_activation(out)


def instance_norm(
    input: Variable,
    epsilon: float = 1e-05,
    param_attr: Any = None,
    bias_attr: Any = None,
    name: str | None = None,
) -> Variable:
    """Normalise each channel of each image, then scale and shift it."""
    check_variable_and_dtype(input, "input", WIDE, "instance_norm")
    _refuse_false(bias_attr, "bias_attr", "instance_norm")
    helper = LayerHelper("instance_norm", param_attr=param_attr, bias_attr=bias_attr, name=name)
    *_, out = helper.outputs_of(
        "instance_norm",
        {"X": input, **_scale_and_bias(helper, [input.shape[1]], input.dtype)},
        {"epsilon": epsilon},
        no_grad="SavedMean SavedVariance",
        **dict.fromkeys(("SavedMean", "SavedVariance", "Y"), input.dtype),
    )
    return out


def data_norm(
    input: Variable,
    act: str | None = None,
    epsilon: float = 1e-05,
    param_attr: Any = None,
    data_layout: str = "NCHW",
    in_place: bool = False,
    name: str | None = None,
    moving_mean_name: str | None = None,
    moving_variance_name: str | None = None,
    do_model_average_for_mean_and_var: bool = True,
    slot_dim: int = -1,
    sync_stats: bool = False,
    summary_decay_rate: float = 0.9999999,
    enable_scale_and_shift: bool = False,
) -> Variable:
    """Normalise by statistics of all data seen so far, which are stored like parameters.

    Args:
        input: data of shape [batch, channels].
        param_attr: a dict of initial values: batch_size, batch_sum, batch_square, scale_w, bias.
        epsilon: added to the sum of squares.
        name: the prefix of the parameters' names, 'dn' by default.
        enable_scale_and_shift: whether to apply a learned scale and shift.
        data_layout: 'NCHW' or 'NHWC'.
        in_place: whether the result replaces the input.
        moving_mean_name: accepted, without effect.
        moving_variance_name: accepted, without effect.
        do_model_average_for_mean_and_var: accepted, without effect.
        slot_dim: stored in the program.
        sync_stats: stored in the program.
        summary_decay_rate: stored in the program.
    """
    check_type(input, "input", Variable, "data_norm")
    helper = LayerHelper("data_norm", act=act, name=name)
    check_choice(data_layout, "data_layout", ("NCHW", "NHWC"), "data_norm")
    shape = [input.shape[1 if data_layout == "NCHW" else -1]]
    given = param_attr if isinstance(param_attr, dict) else {}
    prefix = "dn" if name is None else name

    def parameter(suffix: str, key: str, default: float) -> Variable:
        first = initializer.Constant(float(given.get(key, default)))
        attr = ParamAttr(name=f"{prefix}.{suffix}", initializer=first, trainable=True)
        return helper.create_parameter(attr=attr, shape=shape, dtype=input.dtype)

    inputs = {"X": input}
    if enable_scale_and_shift:
        inputs["scale_w"] = parameter("scale_w", "scale_w", 1.0)
        inputs["bias"] = parameter("bias", "bias", 0.0)
    inputs["BatchSize"] = parameter("batch_size", "batch_size", 1e4)
    inputs["BatchSum"] = parameter("batch_sum", "batch_sum", 0.0)
    inputs["BatchSquareSum"] = parameter("batch_square_sum", "batch_square", 1e4)
    means = helper.create_variable(dtype=input.dtype, stop_gradient=True)
    scales = helper.create_variable(dtype=input.dtype, stop_gradient=True)
    out = input if in_place else helper.create_variable(dtype=input.dtype)
    attrs: dict[str, Any] = {
        "epsilon": epsilon,
        "sync_stats": sync_stats,
        "summary_decay_rate": summary_decay_rate,
        "enable_scale_and_shift": enable_scale_and_shift,
    }
    if slot_dim > 0:
        attrs["slot_dim"] = slot_dim
    helper.append_op("data_norm", inputs, {"Y": out, "Means": means, "Scales": scales}, attrs)
    return helper.append_activation(out)


@checked(weight=WIDE, dim=int, power_iters=int, eps=float)
def spectral_norm(
    weight: Variable,
    dim: int = 0,
    power_iters: int = 1,
    eps: float = 1e-12,
    name: str | None = None,
) -> Variable:
    """Divide a weight by its largest singular value."""
    helper = LayerHelper("spectral_norm", name=name)
    rows = weight.shape[dim]
    vectors = []
    for length in (rows, math.prod(weight.shape) // rows):
        vector = helper.weight([length], weight.dtype, initializer.Normal(0.0, 1.0))
        vector.stop_gradient = True
        vectors.append(vector)
    out = helper.create_variable(dtype=weight.dtype)
    helper.append_op(
        type="spectral_norm",
        inputs={"Weight": weight, "U": vectors[0], "V": vectors[1]},
        outputs={"Out": out},
        attrs={"dim": dim, "power_iters": power_iters, "eps": eps},
    )
    return out


@op_layer("X=input", output="MidOut Out", returns="Out", no_grad="MidOut", input=("float32",))
def lrn(
    input: Variable,
    n: int = 5,
    k: float = 1.0,
    alpha: float = 1e-4,
    beta: float = 0.75,
    name: str | None = None,
    data_format: str = "NCHW",
) -> Variable:
    """Local response normalisation over n channels: x / (k + alpha * sum of squares) ** beta."""
    if len(input.shape) != 4:
        raise ValueError(f"the input of lrn must have 4 dimensions, but has shape {input.shape}.")
    check_choice(data_format, "data_format", ("NCHW", "NHWC"), "lrn")
    return changed()


export_defined(globals(), without="append_batch_norm statistics_outputs")
