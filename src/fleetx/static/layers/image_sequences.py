"""Layers of Fluid's `contrib` on images of different sizes, each a sequence of a batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fleetx.exports import export_defined
from fleetx.static.building.layer_helper import LayerHelper
from fleetx.static.building.one_op import WIDE
from fleetx.static.building.op_layer import checked
from fleetx.static.graph.variable import Variable
from fleetx.static.layers.window_args import convert_to_list


@checked(input=WIDE)
def var_conv_2d(
    input: Variable,
    row: Variable,
    col: Variable,
    input_channel: int,
    output_channel: int,
    filter_size: int | Sequence[int],
    stride: int | Sequence[int] = 1,
    param_attr: Any = None,
    act: str | None = None,
    dtype: Any = "float32",
    name: str | None = None,
) -> Variable:
    """Convolve images of different sizes, padded so that a stride of 1 keeps their sizes.

    Args:
        input: images as sequences of channels x rows x columns values, shape [N, 1].
        row: sequences whose lengths are the heights of the images.
        col: sequences whose lengths are the widths of the images.
        input_channel: the number of channels of the images.
        output_channel: the number of channels of the result.
        filter_size: the size of the filters, or height and width.
        stride: the distance of windows, or those of rows and of columns.
        param_attr: the filters' attributes.
        act: the name of an activation.
        dtype: the element type.
        name: the layer's name.
    """
    helper = LayerHelper("var_conv_2d", param_attr=param_attr, act=act, name=name)
    kernel = convert_to_list(filter_size, 2, "filter_size")
    step = convert_to_list(stride, 2, "stride")
    shape = [output_channel, input_channel * kernel[0] * kernel[1]]
    weight = helper.create_parameter(helper.param_attr, shape, dtype)
    out, _ = helper.outputs_of(
        "var_conv_2d",
        {"X": input, "ROW": row, "COLUMN": col, "W": weight},
        {
            "InputChannel": input_channel,
            "OutputChannel": output_channel,
            "StrideH": step[0],
            "StrideW": step[1],
            "KernelH": kernel[0],
            "KernelW": kernel[1],
        },
        no_grad="Col",
        Out=dtype,
        Col=dtype,
    )
    return helper.append_activation(out)


@checked(input=WIDE)
def sequence_topk_avg_pooling(
    input: Variable, row: Variable, col: Variable, topks: Sequence[int], channel_num: int
) -> Variable:
    """Average the k largest values of every row of an image, for several k and every channel.

    Args:
        input: images as sequences of channels x rows x columns values, shape [N, 1].
        row: sequences whose lengths are the heights of the images.
        col: sequences whose lengths are the widths of the images.
        topks: the values of k, in ascending order.
        channel_num: the number of channels.
    """
    helper = LayerHelper("sequence_topk_avg_pooling")
    out, _ = helper.outputs_of(
        "sequence_topk_avg_pooling",
        {"X": input, "ROW": row, "COLUMN": col},
        {"topks": list(topks), "channel_num": channel_num},
        no_grad="pos",
        Out=input.dtype,
        pos="int32",
    )
    return out


export_defined(globals())
