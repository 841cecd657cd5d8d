"""Layers that rearrange and sample images."""

from __future__ import annotations

from typing import Any

import numpy as np

from fleetx.exports import export_defined
from fleetx.static import unique_name
from fleetx.static.building.argument_checks import check_choice, check_variable_and_dtype
from fleetx.static.building.layer_helper import LayerHelper
from fleetx.static.building.one_op import WIDE, WIDE_NUMBERS, one_op
from fleetx.static.building.op_layer import changed, checked, op_layer
from fleetx.static.graph.variable import Variable
from fleetx.static.layers.window_args import patch_attrs


@op_layer("x", x=WIDE, upscale_factor=int)
def pixel_shuffle(x: Variable, upscale_factor: int) -> Variable:
    """Turn channels into pixels: [N, C r^2, H, W] becomes [N, C, H r, W r]."""


def _check_block_size(value: Any, name: str, layer: str) -> None:
    if not isinstance(value, int):
        raise ValueError(f"{name} of {layer} must be an int, not {value!r}.")


@op_layer("x", blocksize=_check_block_size, x=("float16", *WIDE_NUMBERS))
def space_to_depth(x: Variable, blocksize: int, name: str | None = None) -> Variable:
    """Turn blocks of pixels into channels: [N, C, H, W] becomes [N, C b^2, H/b, W/b]."""


@op_layer("x", group=int)
def shuffle_channel(x: Variable, group: int, name: str | None = None) -> Variable:
    """Shuffle channels across groups, for the next grouped convolution."""


@op_layer("x", x=WIDE, seg_num=int, shift_ratio=float)
def temporal_shift(
    x: Variable, seg_num: int, shift_ratio: float = 0.25, name: str | None = None
) -> Variable:
    """Temporal shift: move a fraction of the channels to the next and to the previous frame."""


@op_layer("x scale bias", x=WIDE, scale=Variable | None, bias=Variable | None)
def affine_channel(
    x: Variable,
    scale: Variable | None = None,
    bias: Variable | None = None,
    data_layout: str = "NCHW",
    name: str | None = None,
    act: str | None = None,
) -> Variable:
    """Scale and shift each channel."""


@checked(theta=WIDE)
def affine_grid(theta: Variable, out_shape: Any, name: str | None = None) -> Variable:
    """Return the sampling grid of affine maps for images of shape `out_shape`."""
    if not isinstance(out_shape, list | tuple | Variable):
        raise ValueError("out_shape of affine_grid must be a list, a tuple or a Variable.")
    inputs, attrs = {"Theta": theta}, {}
    if isinstance(out_shape, Variable):
        check_variable_and_dtype(out_shape, "out_shape", ["int32"], "affine_grid")
        inputs["OutputShape"] = out_shape
    else:
        attrs["output_shape"] = list(out_shape)
    return one_op("affine_grid", inputs, attrs, dtype=theta.dtype, slot="Output")


@op_layer("x grid", output="Output", x=WIDE, grid=WIDE)
def grid_sampler(x: Variable, grid: Variable, name: str | None = None) -> Variable:
    """Sample images at the points of a grid by bilinear interpolation, with zeros outside."""


@checked(x=WIDE)
def unfold(
    x: Variable,
    kernel_sizes: Any,
    strides: Any = 1,
    paddings: Any = 0,
    dilations: Any = 1,
    name: str | None = None,
) -> Variable:
    """Return the patches of images as columns: [N, C k_h k_w, places]."""
    if len(x.shape) != 4:
        raise ValueError(f"unfold takes images [N, C, H, W], but got shape {x.shape}.")
    attrs = patch_attrs(kernel_sizes, strides, paddings, dilations)
    return one_op("unfold", {"X": x}, attrs, dtype=x.dtype, name=name, slot="Y")


@checked(x=(*WIDE, "uint8", "int16", "int32"), shape=list)
def random_crop(x: Variable, shape: list[int], seed: Any = None) -> Variable:
    """Crop each instance to the given shape at a random position.

    Args:
        x: instances, with any number of dimensions before those of `shape`.
        shape: the shape of a piece.
        seed: an int for the first run, or a Variable. Each run updates it for the next one.
    """
    if seed is not None and not isinstance(seed, int | Variable):
        raise ValueError(f"seed of random_crop must be a Variable or an int, not {seed!r}.")
    helper = LayerHelper("random_crop")
    attrs: dict[str, Any] = {"shape": shape}
    if not isinstance(seed, Variable):
        attrs["startup_seed"] = np.random.randint(-65536, 65536) if seed is None else seed
        name = unique_name.generate("random_crop_seed")
        seed = helper.create_global_variable(True, name=name, dtype="int64", shape=[1])
    out = helper.create_variable_for_type_inference(x.dtype)
    helper.append_op("random_crop", {"X": x, "Seed": seed}, {"Out": out, "SeedOut": seed}, attrs)
    return out


@op_layer("X=input", input=WIDE)
def add_position_encoding(
    input: Variable, alpha: float, beta: float, name: str | None = None
) -> Variable:
    """Return alpha * input + beta * (sines and cosines of the position)."""


_BOXES = "X=input ROIs=rois rois_lod"


@op_layer(_BOXES, output="Out Argmax:int32", input=Variable, rois=Variable)
def roi_pool(
    input: Variable,
    rois: Variable,
    pooled_height: int = 1,
    pooled_width: int = 1,
    spatial_scale: float = 1.0,
    rois_lod: Variable | None = None,
) -> Variable:
    """RoI max pooling: the maximum of each bin of boxes (left, top, right, bottom)."""


@op_layer(_BOXES, input=WIDE, rois=WIDE)
def roi_align(
    input: Variable,
    rois: Variable,
    pooled_height: int = 1,
    pooled_width: int = 1,
    spatial_scale: float = 1.0,
    sampling_ratio: int = -1,
    name: str | None = None,
    rois_lod: Variable | None = None,
) -> Variable:
    """RoI align: average samples of each bin of boxes (left, top, right, bottom)."""


@op_layer(
    "X=input ROIs=rois",
    input=Variable,
    output_channels=int,
    spatial_scale=float,
    pooled_height=int,
    pooled_width=int,
)
def psroi_pool(
    input: Variable,
    rois: Variable,
    output_channels: int,
    spatial_scale: float,
    pooled_height: int,
    pooled_width: int,
    name: str | None = None,
) -> Variable:
    """Position-sensitive RoI pooling: average each bin of boxes over its own channels.

    The input has output_channels * pooled_height * pooled_width channels.
    """


@op_layer("X=input", input=WIDE, axis=int, indexes=list)
def similarity_focus(
    input: Variable, axis: int, indexes: list[int], name: str | None = None
) -> Variable:
    """Mark with ones where the slices `indexes` along `axis` of [N, A, B, C] are strongest."""
    check_choice(axis, "axis", (1, 2, 3), "similarity_focus")
    if not indexes:
        raise ValueError("indexes of similarity_focus must not be empty.")
    return changed()


export_defined(globals())
