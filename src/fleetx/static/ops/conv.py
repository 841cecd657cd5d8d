"""Convolutions and transposed convolutions in two and three dimensions."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from fleetx.static.graph.op_registry import op
from fleetx.static.ops.windows import pad, resolve, to_channels_first, to_channels_last

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


def _general_conv(
    function: Callable[..., torch.Tensor],
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    strides: list[int],
    paddings: list[int],
    dilations: list[int],
    groups: int,
    algorithm: str,
    data_format: str,
) -> torch.Tensor:
    """Convolve with any padding rule and either layout."""
    last = data_format in _CHANNELS_LAST
    if last:
        x = to_channels_first(x)
    if algorithm == "SAME":
        dilations = [1] * len(strides)  # Paddle ignores dilation here
    before, after = resolve(x.shape[2:], weight.shape[2:], strides, paddings, algorithm)
    if before != after:
        x, before = pad(x, before, after), [0] * len(before)
    out = function(x, weight, bias, strides, before, dilations, groups)
    return to_channels_last(out) if last else out


def _conv2d(
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
    if padding_algorithm == "EXPLICIT" and len(paddings) == 2 and data_format != "NHWC":
        out = torch.conv2d(x, weight, bias, strides, paddings, dilations, groups)
    else:
        out = _general_conv(
            torch.conv2d, x, weight, bias, strides, paddings, dilations, groups,
            padding_algorithm, data_format,
        )  # fmt: skip
    return out if residual is None else out + residual


for _type in ("conv2d", "depthwise_conv2d"):
    op(
        _type,
        inputs="Input Filter Bias? ResidualData?",
        outputs="Output",
        attrs=_conv_attrs(2),
    )(_conv2d)


@op("conv3d", inputs="Input Filter ResidualData?", outputs="Output", attrs=_conv_attrs(3))
def _conv3d(
    x: torch.Tensor,
    weight: torch.Tensor,
    residual: torch.Tensor | None,
    *,
    strides: list[int],
    paddings: list[int],
    padding_algorithm: str,
    groups: int,
    dilations: list[int],
    data_format: str,
) -> torch.Tensor:
    out = _general_conv(
        torch.conv3d, x, weight, None, strides, paddings, dilations, groups,
        padding_algorithm, data_format,
    )  # fmt: skip
    return out if residual is None else out + residual


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
