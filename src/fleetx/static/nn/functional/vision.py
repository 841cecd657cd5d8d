"""Functions that rearrange and sample images."""

from __future__ import annotations

from typing import Any

from fleetx.exports import export_defined
from fleetx.static.building.argument_checks import one_of
from fleetx.static.building.one_op import one_op
from fleetx.static.building.op_layer import changed, op_layer
from fleetx.static.graph.variable import Variable
from fleetx.static.layers.window_args import convert_to_list, patch_attrs


@op_layer("x", unused="name")
def pixel_shuffle(
    x: Variable, upscale_factor: int, data_format: str = "NCHW", name: str | None = None
) -> Variable:
    """Rearrange channels into pixels: [N, C r^2, H, W] becomes [N, C, H r, W r]."""


@op_layer("x", unused="name")
def pixel_unshuffle(
    x: Variable, downscale_factor: int, data_format: str = "NCHW", name: str | None = None
) -> Variable:
    """Rearrange pixels into channels: [N, C, H r, W r] becomes [N, C r^2, H, W]."""


@op_layer("x", unused="name")
def channel_shuffle(
    x: Variable, groups: int, data_format: str = "NCHW", name: str | None = None
) -> Variable:
    """Shuffle channels across groups."""


@op_layer("x", unused="name")
def temporal_shift(
    x: Variable,
    seg_num: int,
    shift_ratio: float = 0.25,
    name: str | None = None,
    data_format: str = "NCHW",
) -> Variable:
    """Shift a fraction of the channels forward by one frame, and as many backward."""


@op_layer(
    "theta",
    output="Output",
    attrs={"output_shape": "out_shape"},
    tensors="OutputShape=out_shape",
    unused="name",
)
def affine_grid(
    theta: Variable, out_shape: Any, align_corners: bool = True, name: str | None = None
) -> Variable:
    """Return the sampling grid of affine maps for images of shape `out_shape`."""
    given = out_shape if isinstance(out_shape, Variable) else [int(d) for d in out_shape]
    return changed(out_shape=given)


@op_layer(
    "x grid",
    op="grid_sampler",
    output="Output",
    unused="name",
    mode=one_of("bilinear", "nearest"),
    padding_mode=one_of("zeros", "reflection", "border"),
)
def grid_sample(
    x: Variable,
    grid: Variable,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
    align_corners: bool = True,
    name: str | None = None,
) -> Variable:
    """Sample images at the locations of a grid."""


def fold(
    x: Variable,
    output_sizes: Any,
    kernel_sizes: Any,
    strides: Any = 1,
    paddings: Any = 0,
    dilations: Any = 1,
    name: str | None = None,
) -> Variable:
    """Combine patches [N, C k_h k_w, patches] into images; overlaps are summed."""
    attrs = patch_attrs(kernel_sizes, strides, paddings, dilations)
    attrs["output_sizes"] = convert_to_list(output_sizes, 2, "output_sizes")
    return one_op("fold", {"X": x}, attrs, dtype=x.dtype, slot="Y")


export_defined(globals())
