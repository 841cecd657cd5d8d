"""Convolutions with given weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fleetx.exports import export_defined
from fleetx.static.building.argument_checks import check_variable_and_dtype
from fleetx.static.building.layer_helper import LayerHelper
from fleetx.static.building.one_op import FLOATS
from fleetx.static.building.spatial_variants import LAYOUTS, of_axes
from fleetx.static.graph.variable import Variable
from fleetx.static.layers.tensor import squeeze, unsqueeze
from fleetx.static.layers.window_args import check_choice, convert_to_list, resolve_padding


def _check(n: int, x: Variable, groups: int, data_format: str, layer: str) -> int:
    """Check the input of a convolution; return its number of channels."""
    check_variable_and_dtype(x, "x", FLOATS, layer)
    check_choice(data_format, "data_format", LAYOUTS[n], layer)
    if len(x.shape) != n + 2:
        raise ValueError(f"{layer} takes data of {n + 2} dimensions, but got shape {x.shape}.")
    channels = x.shape[-1 if data_format.endswith("C") else 1]
    if channels < 0:
        raise ValueError(f"{layer} must know the number of channels, but got shape {x.shape}.")
    if groups <= 0 or channels % groups:
        raise ValueError(
            f"the channels of {layer} must be divisible by groups, but the input has shape "
            f"{x.shape} and groups is {groups}."
        )
    return channels


def _append(
    helper: LayerHelper,
    x: Variable,
    weight: Variable,
    bias: Variable | None,
    attrs: dict[str, Any],
    last: bool,
) -> Variable:
    """Append the helper's op, and the bias over the channels."""
    inputs, dtype = {"Input": x, "Filter": weight}, x.dtype
    out = helper.output_of(helper.layer_type, inputs, attrs, dtype=dtype, slot="Output")
    if bias is None:
        return out
    inputs, axis = {"X": out, "Y": bias}, -1 if last else 1
    return helper.output_of("elementwise_add", inputs, {"axis": axis}, dtype=dtype)


def _conv(
    n: int,
    x: Variable,
    weight: Variable,
    bias: Variable | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
    data_format: str = "NCHW",
    name: str | None = None,
) -> Variable:
    """Convolve images; the weight has shape [filters, channels / groups, *size]."""
    layer = f"conv{n}d"
    channels = _check(n, x, groups, data_format, layer)
    if n == 1:
        steps, pads, holes = _as_images(stride, padding, dilation)
        settings = (bias, steps, pads, holes, groups)
        return _on_images(_conv, x, weight, data_format, *settings, name=name)
    if weight.shape[0] % groups:
        raise ValueError(
            f"the filters of {layer} must be divisible by groups, but the weight has shape "
            f"{weight.shape} and groups is {groups}."
        )
    last = data_format.endswith("C")
    paddings, algorithm = resolve_padding(padding, n, last, layer)
    op_type = layer
    if n == 2 and channels == groups and channels != 1 and weight.shape[0] % channels == 0:
        op_type = "depthwise_conv2d"
    helper = LayerHelper(op_type, name=name)
    attrs = {
        "strides": convert_to_list(stride, n, "stride"),
        "paddings": paddings,
        "dilations": convert_to_list(dilation, n, "dilation"),
        "groups": groups,
        "padding_algorithm": algorithm,
        "data_format": data_format,
    }
    return _append(helper, x, weight, bias, attrs, last)


conv1d = of_axes(_conv, "conv1d", 1)
conv2d = of_axes(_conv, "conv2d", 2)
conv3d = of_axes(_conv, "conv3d", 3)


def _as_images(stride: Any, padding: Any, dilation: Any) -> tuple[Any, Any, Any]:
    """Return a signal's stride, padding and dilation for images of height one."""
    if not isinstance(padding, str):
        flat = [padding] if isinstance(padding, int) else [p for p in padding if p not in ([0, 0],)]
        if len(flat) == 1 and isinstance(flat[0], list | tuple):
            flat = list(flat[0])
        padding = [0, 0, *(flat * 2 if len(flat) == 1 else flat)]
    stride = convert_to_list(stride, 1, "stride")
    dilation = convert_to_list(dilation, 1, "dilation")
    return [1, *stride], padding, [1, *dilation]


def _on_images(
    convolve: Callable[..., Variable],
    x: Variable,
    weight: Variable,
    data_format: str,
    *settings: Any,
    name: str | None,
) -> Variable:
    """Convolve signals as images of height one."""
    axis, layout = (1, "NHWC") if data_format == "NLC" else (2, "NCHW")
    image, filters = unsqueeze(x, [axis]), unsqueeze(weight, [2])
    return squeeze(convolve(2, image, filters, *settings, data_format=layout, name=name), [axis])


def _transpose(
    n: int,
    x: Variable,
    weight: Variable,
    bias: Variable | None = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
    output_size: Any = None,
    data_format: str = "NCHW",
    name: str | None = None,
) -> Variable:
    """Transposed convolution of images; the weight has shape [channels, filters / groups, ...]."""
    layer = f"conv{n}d_transpose"
    channels = _check(n, x, groups, data_format, layer)
    if n == 1:
        steps, pads, holes = _as_images(stride, padding, dilation)
        more, size = output_padding, output_size
        if more != 0:
            more = [0, *convert_to_list(more, 1, "output_padding")]
        if size is not None:
            size = [1, *convert_to_list(size, 1, "output_size")]
        settings = (bias, steps, pads, more, groups, holes, size)
        return _on_images(_transpose, x, weight, data_format, *settings, name=name)
    last = data_format.endswith("C")
    paddings, algorithm = resolve_padding(padding, n, last, layer)
    extra = [] if output_padding == 0 else convert_to_list(output_padding, n, "output_padding")
    if output_size is not None and any(extra):
        raise ValueError(f"{layer} takes output_padding or output_size, not both.")
    op_type = layer
    if n == 2 and channels == groups and channels != 1 and weight.shape[1] == 1:
        op_type = "depthwise_conv2d_transpose"
    helper = LayerHelper(op_type, name=name)
    size = [] if output_size is None else convert_to_list(output_size, n, "output_size")
    attrs = {
        "output_padding": extra,
        "output_size": size,
        "strides": convert_to_list(stride, n, "stride"),
        "paddings": paddings,
        "padding_algorithm": algorithm,
        "dilations": convert_to_list(dilation, n, "dilation"),
        "groups": groups,
        "data_format": "NHWC" if last else "NCHW",
    }
    return _append(helper, x, weight, bias, attrs, last)


conv1d_transpose = of_axes(_transpose, "conv1d_transpose", 1)
conv3d_transpose = of_axes(_transpose, "conv3d_transpose", 3)


def conv2d_transpose(
    x: Variable,
    weight: Variable,
    bias: Variable | None = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
    output_size: Any = None,
    data_format: str = "NCHW",
    name: str | None = None,
) -> Variable:
    """Transposed convolution of images; the weight has shape [channels, filters / groups, h, w]."""
    return _transpose(
        2, x, weight, bias, stride, padding, output_padding, groups, dilation, output_size,
        data_format, name,
    )  # fmt: skip


export_defined(globals())
