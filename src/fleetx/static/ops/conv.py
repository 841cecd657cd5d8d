"""Convolutions and transposed convolutions in two and three dimensions."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from fleetx import torch_private
from fleetx.static.graph.op_registry import op
from fleetx.static.ops.windows import (
    pad,
    resolve,
    to_channels_first,
    to_channels_last,
    window_counts,
)
from fleetx.static.shapes.infer_rules import Shape, input_var, set_output
from fleetx.static.shapes.infer_shape import infer_by_running

_CHANNELS_LAST = ("NHWC", "NDHWC")


def _conv_attrs(n: int) -> dict[str, Any]:
    return {
        "is_test": False,
        "strides": [1] * n,
        "paddings": [0] * n,
        "padding_algorithm": "EXPLICIT",
        "groups": 1,
        "dilations": [1] * n,
        "use_cudnn": False,
        "fuse_relu_before_depthwise_conv": False,
        "data_format": "NCHW" if n == 2 else "NCDHW",
        "workspace_size_MB": 512,
        "exhaustive_search": False,
    }


def _transpose_attrs(n: int) -> dict[str, Any]:
    names = ("is_test", "strides", "paddings", "padding_algorithm", "groups", "dilations")
    common = {k: v for k, v in _conv_attrs(n).items() if k in names}
    more = {"output_size": [], "output_padding": [], "use_cudnn": False, "data_format": "NCHW"}
    return {**common, **more}


def _infer_conv(op: Any, block: Any) -> None:
    """Compute the shape with the usual settings; run on meta tensors otherwise, or for a message.

    The kernels for meta tensors import sympy, which takes longer than building a network.
    """
    x, weight = input_var(op, block, "Input"), input_var(op, block, "Filter")
    n = len(op.attr("strides"))
    usual = op.attr("padding_algorithm") == "EXPLICIT" and len(op.attr("paddings")) == n
    usual = usual and len(op.attr("dilations")) == n and op.attr("groups") > 0
    usual = usual and op.attr("data_format") not in _CHANNELS_LAST
    usual = usual and not any(op.input(slot) for slot in ("Bias", "ResidualData"))
    shape = None
    if usual and x is not None and weight is not None and x.dtype == weight.dtype:
        shape = _conv_shape(x.shape, weight.shape, op.attrs)
    if shape is None:
        infer_by_running(op, block)
    else:
        set_output(op, block, "Output", shape, x.dtype)


def _conv_shape(x: Shape, weight: Shape, attrs: dict[str, Any]) -> Shape | None:
    """Return the shape of the result; None if the shapes do not fit."""
    dims = len(attrs["strides"]) + 2
    if len(x) != dims or len(weight) != dims or min(weight) <= 0 or x[0] == 0:
        return None
    if x[1] != weight[1] * attrs["groups"] or weight[0] % attrs["groups"]:
        return None
    settings = attrs["strides"], attrs["paddings"], attrs["dilations"]
    counts = window_counts(x[2:], weight[2:], *settings)
    return None if counts is None else (x[0], weight[0], *counts)


def _conv(
    function: Callable[..., torch.Tensor],
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    residual: torch.Tensor | None,
    *,
    strides: list[int],
    paddings: list[int],
    padding_algorithm: str,
    groups: int,
    dilations: list[int],
    data_format: str,
) -> torch.Tensor:
    """Convolve with any padding rule and either layout, and add a residual if there is one."""
    last = data_format in _CHANNELS_LAST
    if padding_algorithm != "EXPLICIT" or len(paddings) != len(strides) or last:
        if last:
            x = to_channels_first(x)
        if padding_algorithm == "SAME":
            dilations = [1] * len(strides)  # Paddle ignores dilation here
        sizes = x.shape[2:], weight.shape[2:]
        paddings, after = resolve(*sizes, strides, paddings, padding_algorithm)
        if paddings != after:
            x, paddings = pad(x, paddings, after), [0] * len(after)
    out = function(x, weight, bias, strides, paddings, dilations, groups)
    out = to_channels_last(out) if last else out
    return out if residual is None else out + residual


_conv2d = functools.partial(_conv, torch.conv2d)
# torch itself leaves one image of up to so many numbers to its own kernel, but never two.
_TINY = 20480


def _tiny_conv2d(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, residual: Any, **attrs: Any
) -> torch.Tensor:
    """Convolve without oneDNN if the input is tiny, and all settings are the usual ones.

    Calling oneDNN takes ten times as long as computing such a convolution.
    """
    usual = attrs["padding_algorithm"] == "EXPLICIT" and len(attrs["paddings"]) == 2
    usual = usual and attrs["data_format"] != "NHWC" and residual is None
    usual = usual and attrs["groups"] == 1 and attrs["dilations"] == [1, 1]
    fits = x.dim() == weight.dim() == 4 and x.shape[1] == weight.shape[1]
    if usual and fits and x.is_cpu and x.dtype is torch.float32 and 0 < x.numel() <= _TINY:
        sizes = attrs["strides"], attrs["paddings"]
        return torch_private.conv2d_without_onednn(x, weight, weight.shape[2:], bias, *sizes)
    return _conv2d(x, weight, bias, residual, **attrs)


for _type in ("conv2d", "depthwise_conv2d"):
    op(
        _type,
        inputs="Input Filter Bias? ResidualData?",
        outputs="Output",
        attrs=_conv_attrs(2),
        infer=_infer_conv,
        alone=_tiny_conv2d,
    )(_conv2d)


@op(
    "conv3d",
    inputs="Input Filter ResidualData?",
    outputs="Output",
    attrs=_conv_attrs(3),
    infer=_infer_conv,
)
@functools.wraps(_conv)  # whose keywords are the attributes
def _conv3d(x: Any, weight: Any, residual: Any, **attrs: Any) -> torch.Tensor:
    return _conv(torch.conv3d, x, weight, None, residual, **attrs)


def _transposed(
    function: Callable[..., torch.Tensor],
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    *,
    output_size: list[int],
    output_padding: list[int],
    strides: list[int],
    paddings: list[int],
    padding_algorithm: str,
    groups: int,
    dilations: list[int],
    data_format: str,
) -> torch.Tensor:
    """Compute the whole transposed convolution and cut off what the paddings say.

    `output_size` may exceed the natural size by less than one stride: those rows are computed too.
    """
    last = data_format in _CHANNELS_LAST
    if last:
        x = to_channels_first(x)
    if padding_algorithm == "SAME":
        dilations = [1] * len(strides)
    before, after = resolve(x.shape[2:], weight.shape[2:], strides, paddings, padding_algorithm)
    extra = list(output_padding) or [0] * len(strides)
    if output_size:
        natural = [
            (n - 1) * s + d * (k - 1) + 1 - b - a
            for n, s, d, k, b, a in zip(
                x.shape[2:], strides, dilations, weight.shape[2:], before, after, strict=True
            )
        ]
        extra = [int(want) - got for want, got in zip(output_size, natural, strict=True)]
        if any(e < 0 or e >= s for e, s in zip(extra, strides, strict=True)):
            raise ValueError(
                f"output_size {list(output_size)} must be at least {natural} and less than "
                f"one stride ({list(strides)}) larger."
            )
    if before == after:
        out = function(x, weight, bias, strides, before, extra, groups, dilations)
    else:
        # Rows asked for beyond the natural size are those that padding would have cut off.
        out = function(x, weight, bias, strides, [0] * len(before), extra, groups, dilations)
        out = pad(out, [-b for b in before], [-a for a in after])
    return to_channels_last(out) if last else out


for _type in ("conv2d_transpose", "depthwise_conv2d_transpose"):
    op(_type, inputs="Input Filter Bias?", outputs="Output", attrs=_transpose_attrs(2))(
        functools.partial(_transposed, F.conv_transpose2d)
    )
op("conv3d_transpose", inputs="Input Filter Bias?", outputs="Output", attrs=_transpose_attrs(3))(
    functools.partial(_transposed, F.conv_transpose3d)
)
