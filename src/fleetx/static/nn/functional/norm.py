"""Normalisations with given parameters."""

from __future__ import annotations

from typing import Any

from fleetx.exports import export_defined
from fleetx.static.building.argument_checks import check_variable_and_dtype
from fleetx.static.building.layer_helper import LayerHelper
from fleetx.static.building.one_op import FLOATS
from fleetx.static.graph.variable import Variable
from fleetx.static.layers.norm import statistics_outputs
from fleetx.static.nn.functional.common import normalize as normalize


def batch_norm(
    x: Variable,
    running_mean: Variable,
    running_var: Variable,
    weight: Variable | None = None,
    bias: Variable | None = None,
    training: bool = False,
    momentum: float = 0.9,
    epsilon: float = 1e-05,
    data_format: str = "NCHW",
    use_global_stats: bool | None = None,
    name: str | None = None,
) -> Variable:
    """Normalise channels by batch statistics in training, else by running statistics."""
    check_variable_and_dtype(x, "input", FLOATS, "batch_norm")
    if len(x.shape) < 2:
        raise ValueError(f"batch_norm takes at least 2 dimensions, but the shape is {x.shape}.")
    trainable = False if use_global_stats is None else not use_global_stats
    if use_global_stats is None:
        use_global_stats = not training
    helper = LayerHelper("batch_norm", name=name)
    outputs = statistics_outputs(helper, running_mean, running_var, running_mean.dtype)
    outputs["Y"] = out = helper.create_variable_for_type_inference(x.dtype)
    if training:
        outputs["ReserveSpace"] = helper.create_variable_for_type_inference(x.dtype, True)
    inputs = {"X": x, "Scale": weight, "Bias": bias, "Mean": running_mean, "Variance": running_var}
    attrs = {
        "momentum": momentum,
        "epsilon": epsilon,
        "is_test": not training,
        "data_layout": _layout(data_format),
        "fuse_with_relu": False,
        "use_global_stats": use_global_stats,
        "trainable_statistics": trainable,
    }
    helper.append_op(type="batch_norm", inputs=inputs, outputs=outputs, attrs=attrs)
    return out


def _layout(data_format: str) -> str:
    return "NHWC" if data_format.endswith("C") and data_format != "NC" else "NCHW"


def _normalized(
    type: str,
    inputs: dict[str, Any],
    attrs: dict[str, Any],
    name: str | None,
    slot: str = "Y",
    **statistics: Any,
) -> Variable:
    """Append a normalisation and return its output; `statistics` are the types of the others."""
    dtypes = {**statistics, slot: inputs["X"].dtype}
    helper = LayerHelper(type, name=name)
    *_, out = helper.outputs_of(type, inputs, attrs, no_grad=" ".join(statistics), **dtypes)
    return out


def layer_norm(
    x: Variable,
    normalized_shape: Any,
    weight: Variable | None = None,
    bias: Variable | None = None,
    epsilon: float = 1e-05,
    name: str | None = None,
) -> Variable:
    """Normalise each row over its last dimensions, whose sizes are `normalized_shape`."""
    check_variable_and_dtype(x, "input", FLOATS, "layer_norm")
    shape = [normalized_shape] if isinstance(normalized_shape, int) else list(normalized_shape)
    begin = len(x.shape) - len(shape)
    if begin < 0 or list(x.shape[begin:]) != shape:
        raise ValueError(
            f"normalized_shape {shape} must be the last dimensions of the input, whose shape is "
            f"{x.shape}."
        )
    inputs = {"X": x, "Scale": weight, "Bias": bias}
    attrs = {"epsilon": epsilon, "begin_norm_axis": begin}
    return _normalized("layer_norm", inputs, attrs, name, Mean="float32", Variance="float32")


def group_norm(
    x: Variable,
    num_groups: int,
    epsilon: float = 1e-05,
    weight: Variable | None = None,
    bias: Variable | None = None,
    data_format: str = "NCHW",
    name: str | None = None,
) -> Variable:
    """Normalise groups of channels of each instance."""
    check_variable_and_dtype(x, "input", FLOATS, "group_norm")
    inputs = {"X": x, "Scale": weight, "Bias": bias}
    attrs = {"epsilon": epsilon, "groups": num_groups, "data_layout": _layout(data_format)}
    return _normalized("group_norm", inputs, attrs, name, Mean=x.dtype, Variance=x.dtype)


def instance_norm(
    x: Variable,
    running_mean: Variable | None = None,
    running_var: Variable | None = None,
    weight: Variable | None = None,
    bias: Variable | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.9,
    eps: float = 1e-05,
    data_format: str = "NCHW",
    name: str | None = None,
) -> Variable:
    """Normalise each channel of each instance; running statistics have no effect."""
    check_variable_and_dtype(x, "input", FLOATS, "instance_norm")
    inputs = {"X": x, "Scale": weight, "Bias": bias}
    statistics = {"SavedMean": x.dtype, "SavedVariance": x.dtype}
    return _normalized("instance_norm", inputs, {"epsilon": eps}, name, **statistics)


def local_response_norm(
    x: Variable,
    size: int,
    alpha: float = 1e-4,
    beta: float = 0.75,
    k: float = 1.0,
    data_format: str = "NCHW",
    name: str | None = None,
) -> Variable:
    """Divide by the mean m of the squares of neighbouring channels: x / (k + alpha m) ** beta."""
    # The op sums the squares, whereas this function averages them.
    layout = "NHWC" if data_format.endswith("C") else "NCHW"
    attrs = {"n": size, "k": k, "alpha": alpha / size, "beta": beta, "data_format": layout}
    return _normalized("lrn", {"X": x}, attrs, name, "Out", MidOut=x.dtype)


export_defined(globals(), "normalize")
