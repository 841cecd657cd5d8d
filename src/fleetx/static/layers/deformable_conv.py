"""The layer of deformable convolution."""

from __future__ import annotations

from typing import Any

from fleetx.static.building.argument_checks import check_type, check_variable_and_dtype
from fleetx.static.building.layer_helper import LayerHelper
from fleetx.static.graph.variable import Variable
from fleetx.static.layers.conv import filters
from fleetx.static.layers.window_args import convert_to_list

__all__ = ["deformable_conv"]


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
    if modulated and mask is None:
        raise ValueError("deformable_conv needs a mask, or modulated=False to go without one.")
    if param_attr is False:
        raise ValueError("param_attr=False leaves deformable_conv without a filter.")
    channels = input.shape[1]
    if channels % (groups or 1):
        raise ValueError(
            f"deformable_conv got {channels} channels, which groups={groups} does not divide."
        )
    size = convert_to_list(filter_size, 2, "filter_size")
    helper = LayerHelper(layer, param_attr=param_attr, bias_attr=bias_attr, name=name)
    weight = filters(helper, num_filters, channels, groups, size, input.dtype)
    given = {"groups": groups, "deformable_groups": deformable_groups, "im2col_step": im2col_step}
    out = append_deformable_conv(
        helper,
        {"Input": input, "Filter": weight, "Offset": offset},
        mask if modulated else None,
        (stride, padding, dilation),
        {key: value for key, value in given.items() if value is not None},
    )
    return helper.append_bias_op(out, dim_start=1, dim_end=2)


def append_deformable_conv(
    helper: LayerHelper,
    inputs: dict[str, Variable],
    mask: Variable | None,
    window: tuple[Any, Any, Any],
    attrs: dict[str, Any],
) -> Variable:
    """Append the op, of version 1 without a mask; `window` is stride, padding and dilation."""
    kind = "deformable_conv_v1" if mask is None else "deformable_conv"
    settings = {
        f"{name}s": convert_to_list(value, 2, name)
        for name, value in zip(("stride", "padding", "dilation"), window, strict=True)
    }
    if mask is not None:
        inputs = {**inputs, "Mask": mask}
    dtype = inputs["Input"].dtype
    return helper.output_of(kind, inputs, {**settings, **attrs}, dtype=dtype, slot="Output")
