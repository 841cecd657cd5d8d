"""Functions that rearrange and sample images."""

from __future__ import annotations

from typing import Any

from fleetx.exports import export_defined
from fleetx.static.building.one_op import one_op
from fleetx.static.graph.variable import Variable
from fleetx.static.layers.window_args import check_choice, convert_to_list
from fleetx.static.nn.functional.emit import unary


def pixel_shuffle(
    x: Variable, upscale_factor: int, data_format: str = "NCHW", name: str | None = None
) -> Variable:
    """Rearrange channels into pixels: [N, C r^2, H, W] becomes [N, C, H r, W r]."""
    attrs = {"upscale_factor": upscale_factor, "data_format": data_format}
    return unary("pixel_shuffle", x, attrs)


def pixel_unshuffle(
    x: Variable, downscale_factor: int, data_format: str = "NCHW", name: str | None = None
) -> Variable:
    """Rearrange pixels into channels: [N, C, H r, W r] becomes [N, C r^2, H, W]."""
    attrs = {"downscale_factor": downscale_factor, "data_format": data_format}
    return unary("pixel_unshuffle", x, attrs)


def channel_shuffle(
    x: Variable, groups: int, data_format: str = "NCHW", name: str | None = None
) -> Variable:
    """Shuffle channels across groups."""
    return unary("channel_shuffle", x, {"groups": groups, "data_format": data_format})


def temporal_shift(
    x: Variable,
    seg_num: int,
    shift_ratio: float = 0.25,
    name: str | None = None,
    data_format: str = "NCHW",
) -> Variable:
    """Shift a share of the channels forward by one frame, and as many backward."""
    attrs = {"seg_num": seg_num, "shift_ratio": shift_ratio, "data_format": data_format}
    return unary("temporal_shift", x, attrs)


def affine_grid(
    theta: Variable, out_shape: Any, align_corners: bool = True, name: str | None = None
) -> Variable:
    """Return the sampling grid of affine maps for images of shape `out_shape`."""
    inputs: dict[str, Any] = {"Theta": theta}
    attrs: dict[str, Any] = {"align_corners": align_corners}
    if isinstance(out_shape, Variable):
        inputs["OutputShape"] = out_shape
    else:
        attrs["output_shape"] = [int(d) for d in out_shape]
    return one_op("affine_grid", inputs, attrs, dtype=theta.dtype, slot="Output")


def grid_sample(
    x: Variable,
    grid: Variable,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
    align_corners: bool = True,
    name: str | None = None,
) -> Variable:
    """Sample images at the locations of a grid."""
    check_choice(mode, "mode", ("bilinear", "nearest"), "grid_sample")
    check_choice(padding_mode, "padding_mode", ("zeros", "reflection", "border"), "grid_sample")
    attrs = {"mode": mode, "padding_mode": padding_mode, "align_corners": align_corners}
    inputs = {"X": x, "Grid": grid}
    return one_op("grid_sampler", inputs, attrs, dtype=x.dtype, layer="grid_sample", slot="Output")


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
    if isinstance(paddings, list | tuple) and len(paddings) == 2:
        paddings = [*paddings, *paddings]
    attrs = {
        "output_sizes": convert_to_list(output_sizes, 2, "output_sizes"),
        "kernel_sizes": convert_to_list(kernel_sizes, 2, "kernel_sizes"),
        "strides": convert_to_list(strides, 2, "strides"),
        "paddings": convert_to_list(paddings, 4, "paddings"),
        "dilations": convert_to_list(dilations, 2, "dilations"),
    }
    return one_op("fold", {"X": x}, attrs, dtype=x.dtype, slot="Y")


export_defined(globals())
