"""The layer of deformable convolution."""

from __future__ import annotations

from typing import Any

from fleetx.exports import export_defined
from fleetx.static import initializer
from fleetx.static.building.argument_checks import check_type, check_variable_and_dtype
from fleetx.static.building.layer_helper import LayerHelper
from fleetx.static.graph.variable import Variable
from fleetx.static.layers.window_args import convert_to_list


def deformable_conv(
    input: Variable,
    offset: Variable,
    mask: Variable | None,
    num_filters: int,
    filter_size: Any,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int | None = None,
    deformable_groups: int | None = None,
    im2col_step: int | None = None,
    param_attr: Any = None,
    bias_attr: Any = None,
    modulated: bool = True,
    name: str | None = None,
) -> Variable:
    """Convolve with points shifted by `offset`, and weighted by `mask` if `modulated`."""
    layer = "deformable_conv"
    check_variable_and_dtype(input, "input", ["float32", "float64"], layer)
    check_variable_and_dtype(offset, "offset", ["float32", "float64"], layer)
    check_type(mask, "mask", (Variable, type(None)), layer)
    if param_attr is False:
        raise ValueError("param_attr=False leaves deformable_conv without a filter.")
    channels = input.shape[1]
    if channels % (groups or 1):
        raise ValueError(
            f"deformable_conv got {channels} channels, which groups={groups} does not divide."
        )
    size = convert_to_list(filter_size, 2, "filter_size")
    helper = LayerHelper(layer, param_attr=param_attr, bias_attr=bias_attr, name=name)
    weight = helper.create_parameter(
        attr=helper.param_attr,
        shape=[num_filters, channels // (groups or 1), *size],
        dtype=input.dtype,
        default_initializer=initializer.Normal(
            0.0, (2.0 / (size[0] * size[1] * channels)) ** 0.5, 0
        ),
    )
    given = {"groups": groups, "deformable_groups": deformable_groups, "im2col_step": im2col_step}
    attrs = {
        "strides": convert_to_list(stride, 2, "stride"),
        "paddings": convert_to_list(padding, 2, "padding"),
        "dilations": convert_to_list(dilation, 2, "dilation"),
        **{key: value for key, value in given.items() if value is not None},
    }
    inputs = {"Input": input, "Filter": weight, "Offset": offset}
    if modulated:
        inputs["Mask"] = mask
    kind = layer if modulated else "deformable_conv_v1"
    out = helper.output_of(kind, inputs, attrs, dtype=input.dtype, slot="Output")
    return helper.append_bias_op(out, dim_start=1, dim_end=2)


export_defined(globals())
