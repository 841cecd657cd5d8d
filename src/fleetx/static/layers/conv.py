"""Convolution layers."""

from __future__ import annotations

import math
from typing import Any

from fleetx.static.building.argument_checks import check_choice, check_variable_and_dtype
from fleetx.static.building.layer_helper import LayerHelper
from fleetx.static.building.one_op import HALF_TOO
from fleetx.static.building.spatial_variants import LAYOUTS, of_axes
from fleetx.static.errors import ArgumentError
from fleetx.static.graph.variable import Variable
from fleetx.static.initializer import Normal
from fleetx.static.layers.window_args import check_use_cudnn, convert_to_list, resolve_padding

__all__ = ["conv2d", "conv2d_transpose", "conv3d", "conv3d_transpose"]


def _check(
    n: int, input: Variable, param_attr: Any, use_cudnn: Any, data_format: str, layer: str
) -> tuple[bool, int]:
    """Check the arguments of a convolution; return whether channels are last, and their number."""
    check_variable_and_dtype(input, "input", HALF_TOO, layer)
    check_use_cudnn(use_cudnn, layer)
    check_choice(data_format, "data_format", LAYOUTS[n], layer)
    if param_attr is False:
        raise ArgumentError(
            f"param_attr of {layer} must not be False: a convolution needs weights."
        )
    last = data_format.endswith("C")
    count = input.shape[-1 if last else 1]
    if count < 0:
        raise ValueError(
            f"{layer} must know the number of channels, but its input has shape {input.shape}."
        )
    return last, count


def _append(
    helper: LayerHelper, n: int, inputs: dict[str, Variable], attrs: dict[str, Any], last: bool
) -> Variable:
    """Append the helper's op, the bias over the channels and the activation."""
    dtype, axis = inputs["Input"].dtype, n + 1 if last else 1
    out = helper.output_of(helper.layer_type, inputs, attrs, dtype=dtype, slot="Output")
    return helper.append_activation(helper.append_bias_op(out, axis, axis + 1))


def filters(
    helper: LayerHelper, count: int, channels: int, groups: int | None, size: list[int], dtype: Any
) -> Any:
    """Create the filters of a convolution, initialised to preserve the variance of its input."""
    first = Normal(0.0, (2.0 / (channels * math.prod(size))) ** 0.5, 0)
    return helper.weight([count, channels // (groups or 1), *size], dtype, first)


def _conv(
    n: int,
    input: Variable,
    num_filters: int,
    filter_size: Any,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int | None = None,
    param_attr: Any = None,
    bias_attr: Any = None,
    use_cudnn: bool = True,
    act: str | None = None,
    name: str | None = None,
    data_format: str = "NCHW",
) -> Variable:
    """Convolve images with learned filters.

    With `use_cudnn=False` and one group per channel the op is depthwise_conv2d.
    """
    layer = f"conv{n}d"
    last, channels = _check(n, input, param_attr, use_cudnn, data_format, layer)
    if groups is not None and (groups <= 0 or channels % groups):
        raise ValueError(
            f"the channels of the input of {layer} must be divisible by groups, but there are "
            f"{channels} channels (input shape {input.shape}) and groups is {groups}."
        )
    op_type = layer
    if n == 2 and channels == groups and num_filters % channels == 0 and not use_cudnn:
        op_type = "depthwise_conv2d"
    helper = LayerHelper(op_type, param_attr=param_attr, bias_attr=bias_attr, act=act, name=name)
    filter_size = convert_to_list(filter_size, n, "filter_size")
    stride = convert_to_list(stride, n, "stride")
    dilation = convert_to_list(dilation, n, "dilation")
    padding, algorithm = resolve_padding(padding, n, last, layer)
    weight = filters(helper, num_filters, channels, groups, filter_size, input.dtype)
    attrs = {
        "strides": stride,
        "paddings": padding,
        "dilations": dilation,
        "groups": groups,
        "use_cudnn": use_cudnn,
        "padding_algorithm": algorithm,
        "data_format": data_format,
    }
    return _append(helper, n, {"Input": input, "Filter": weight}, attrs, last)


def _filter_size_from_output(
    input: Variable,
    output_size: Any,
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    last: bool,
    layer: str,
) -> list[int]:
    """Return the filter size with which a transposed convolution gives `output_size`."""
    if output_size is None:
        raise ValueError(f"{layer} needs output_size where filter_size is not given.")
    n = len(stride)
    wanted = convert_to_list(output_size, n, "output_size")
    sizes = input.shape[1:-1] if last else input.shape[2:]
    return [
        (wanted[i] - (sizes[i] - 1) * stride[i] + padding[2 * i] + padding[2 * i + 1] - 1)
        // dilation[i]
        + 1
        for i in range(n)
    ]


def _conv_transpose(
    n: int,
    input: Variable,
    num_filters: int,
    output_size: Any = None,
    filter_size: Any = None,
    padding: Any = 0,
    stride: Any = 1,
    dilation: Any = 1,
    groups: int | None = None,
    param_attr: Any = None,
    bias_attr: Any = None,
    use_cudnn: bool = True,
    act: str | None = None,
    name: str | None = None,
    data_format: str = "NCHW",
) -> Variable:
    """Transposed convolution of images; either `filter_size` or `output_size` may be omitted."""
    layer = f"conv{n}d_transpose"
    last, channels = _check(n, input, param_attr, use_cudnn, data_format, layer)
    op_type = layer
    if n == 2 and channels == groups and num_filters == channels and not use_cudnn:
        op_type = "depthwise_conv2d_transpose"
    helper = LayerHelper(op_type, param_attr=param_attr, bias_attr=bias_attr, act=act, name=name)
    stride = convert_to_list(stride, n, "stride")
    dilation = convert_to_list(dilation, n, "dilation")
    pairs, algorithm = resolve_padding(padding, n, last, layer, pairs=True)
    if filter_size is None:
        filter_size = _filter_size_from_output(
            input, output_size, stride, pairs, dilation, last, layer
        )
    else:
        filter_size = convert_to_list(filter_size, n, f"{layer}.filter_size")
    groups = groups or 1
    weight = helper.weight([channels, num_filters // groups, *filter_size], input.dtype)
    attrs = {
        "output_size": []
        if output_size is None
        else convert_to_list(output_size, n, "output_size"),
        "strides": stride,
        "paddings": pairs[0::2] if pairs[0::2] == pairs[1::2] else pairs,
        "padding_algorithm": algorithm,
        "dilations": dilation,
        "groups": groups,
        "use_cudnn": use_cudnn,
        "data_format": "NHWC" if last else "NCHW",
    }
    return _append(helper, n, {"Input": input, "Filter": weight}, attrs, last)


conv2d = of_axes(_conv, "conv2d", 2)
conv3d = of_axes(_conv, "conv3d", 3)
conv2d_transpose = of_axes(_conv_transpose, "conv2d_transpose", 2)
conv3d_transpose = of_axes(_conv_transpose, "conv3d_transpose", 3)
