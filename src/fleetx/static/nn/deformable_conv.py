"""Deformable convolution with a given filter, and as a layer that owns one."""

from __future__ import annotations

from typing import Any

from fleetx.exports import export_defined
from fleetx.static.building.argument_checks import check_type, check_variable_and_dtype
from fleetx.static.building.layer_helper import LayerHelper
from fleetx.static.graph.variable import Variable
from fleetx.static.layers.deformable_conv import append_deformable_conv
from fleetx.static.nn.conv import _Conv
from fleetx.static.nn.functional.emit import binary


def deform_conv2d(
    x: Variable,
    offset: Variable,
    weight: Variable,
    bias: Variable | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    deformable_groups: int = 1,
    groups: int = 1,
    mask: Variable | None = None,
    name: str | None = None,
) -> Variable:
    """Convolve images with points shifted by `offset`, and weighted by `mask` if it is given.

    Args:
        x: images [N, C, H, W].
        offset: shifts [N, 2 * deformable_groups * kernel height * kernel width, H_out, W_out].
        weight: the filter [C_out, C / groups, kernel height, kernel width].
        bias: a number per output channel.
        stride: the step of the window.
        padding: zeros around the images.
        dilation: the distance of the filter's points.
        deformable_groups: groups of channels with separate offsets.
        groups: groups of channels with separate filters.
        mask: weights [N, deformable_groups * kernel height * kernel width, H_out, W_out].
    """
    layer = "deform_conv2d"
    check_variable_and_dtype(x, "x", ["float32", "float64"], layer)
    check_variable_and_dtype(offset, "offset", ["float32", "float64"], layer)
    check_type(mask, "mask", (Variable, type(None)), layer)
    out = append_deformable_conv(
        LayerHelper(layer, name=name),
        {"Input": x, "Filter": weight, "Offset": offset},
        mask,
        (stride, padding, dilation),
        {"groups": groups, "deformable_groups": deformable_groups, "im2col_step": 1},
    )
    return out if bias is None else binary("elementwise_add", out, bias, axis=1)


class DeformConv2D(_Conv, axes=2):
    """Convolves images with points that the caller shifts and weights."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Any,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        deformable_groups: int = 1,
        groups: int = 1,
        weight_attr: Any = None,
        bias_attr: Any = None,
    ) -> None:
        super().__init__()
        self._settings = {"stride": stride, "padding": padding, "dilation": dilation}
        self._settings |= {"deformable_groups": deformable_groups, "groups": groups}
        self._build(in_channels, out_channels, kernel_size, groups, weight_attr, bias_attr)

    def _check_groups(self, in_channels: int, out_channels: int, groups: int) -> None:
        if in_channels % groups:  # the op takes any number of filters
            raise ValueError(
                f"in_channels {in_channels} of DeformConv2D must be divisible by groups {groups}."
            )

    def forward(self, x: Variable, offset: Variable, mask: Variable | None = None) -> Variable:
        """Convolve; without a mask all points have weight one."""
        return deform_conv2d(x, offset, self.weight, self.bias, mask=mask, **self._settings)


export_defined(globals())
