"""Layers that rearrange and sample images."""

from __future__ import annotations

from typing import Any

from fleetx.exports import export_defined
from fleetx.static.building.argument_checks import check_type, check_variable_and_dtype
from fleetx.static.building.layer_helper import LayerHelper
from fleetx.static.graph.variable import Variable
from fleetx.static.layers.window_args import convert_to_list

_WIDE = ["float32", "float64"]


def _simple(
    helper: LayerHelper,
    inputs: dict[str, Any],
    attrs: dict[str, Any],
    dtype: Any,
    output: str = "Out",
) -> Variable:
    """Append the op the helper is named after, with one output."""
    out = helper.create_variable_for_type_inference(dtype)
    helper.append_op(type=helper.layer_type, inputs=inputs, outputs={output: out}, attrs=attrs)
    return out


def pixel_shuffle(x: Variable, upscale_factor: int) -> Variable:
    """Turn channels into pixels: [N, C r^2, H, W] becomes [N, C, H r, W r]."""
    check_variable_and_dtype(x, "x", _WIDE, "pixel_shuffle")
    check_type(upscale_factor, "upscale_factor", int, "pixel_shuffle")
    helper = LayerHelper("pixel_shuffle")
    return _simple(helper, {"X": x}, {"upscale_factor": upscale_factor}, x.dtype)


def space_to_depth(x: Variable, blocksize: int, name: str | None = None) -> Variable:
    """Turn blocks of pixels into channels: [N, C, H, W] becomes [N, C b^2, H/b, W/b]."""
    if not isinstance(blocksize, int):
        raise ValueError(f"blocksize of space_to_depth must be an int, not {blocksize!r}.")
    allowed = ["float16", *_WIDE, "int32", "int64"]
    check_variable_and_dtype(x, "x", allowed, "space_to_depth")
    helper = LayerHelper("space_to_depth", name=name)
    return _simple(helper, {"X": x}, {"blocksize": blocksize}, x.dtype)


def shuffle_channel(x: Variable, group: int, name: str | None = None) -> Variable:
    """Mix the channels of groups, so that the next grouped convolution sees all of them."""
    check_type(group, "group", int, "shuffle_channel")
    return _simple(LayerHelper("shuffle_channel", name=name), {"X": x}, {"group": group}, x.dtype)


def temporal_shift(
    x: Variable, seg_num: int, shift_ratio: float = 0.25, name: str | None = None
) -> Variable:
    """Shift a share of the channels to the next frame and as many to the last one."""
    check_variable_and_dtype(x, "x", _WIDE, "temporal_shift")
    check_type(seg_num, "seg_num", int, "temporal_shift")
    check_type(shift_ratio, "shift_ratio", float, "temporal_shift")
    attrs = {"seg_num": seg_num, "shift_ratio": shift_ratio}
    return _simple(LayerHelper("temporal_shift", name=name), {"X": x}, attrs, x.dtype)


def affine_channel(
    x: Variable,
    scale: Variable | None = None,
    bias: Variable | None = None,
    data_layout: str = "NCHW",
    name: str | None = None,
    act: str | None = None,
) -> Variable:
    """Scale and shift each channel."""
    check_variable_and_dtype(x, "x", _WIDE, "affine_channel")
    check_type(scale, "scale", (Variable, type(None)), "affine_channel")
    check_type(bias, "bias", (Variable, type(None)), "affine_channel")
    helper = LayerHelper("affine_channel", name=name, act=act)
    inputs = {"X": x, "Scale": scale, "Bias": bias}
    return helper.append_activation(_simple(helper, inputs, {"data_layout": data_layout}, x.dtype))


def affine_grid(theta: Variable, out_shape: Any, name: str | None = None) -> Variable:
    """Return where each pixel of an image of shape `out_shape` comes from under affine maps."""
    check_variable_and_dtype(theta, "theta", _WIDE, "affine_grid")
    if not isinstance(out_shape, list | tuple | Variable):
        raise ValueError("out_shape of affine_grid must be a list, a tuple or a Variable.")
    helper = LayerHelper("affine_grid")
    if isinstance(out_shape, Variable):
        check_variable_and_dtype(out_shape, "out_shape", ["int32"], "affine_grid")
        return _simple(
            helper, {"Theta": theta, "OutputShape": out_shape}, {}, theta.dtype, "Output"
        )
    attrs = {"output_shape": list(out_shape)}
    return _simple(helper, {"Theta": theta}, attrs, theta.dtype, "Output")


def grid_sampler(x: Variable, grid: Variable, name: str | None = None) -> Variable:
    """Read images at the places of a grid, by linear interpolation; outside they are zero."""
    check_variable_and_dtype(x, "x", _WIDE, "grid_sampler")
    check_variable_and_dtype(grid, "grid", _WIDE, "grid_sampler")
    helper = LayerHelper("grid_sampler", name=name)
    return _simple(helper, {"X": x, "Grid": grid}, {}, x.dtype, "Output")


def unfold(
    x: Variable,
    kernel_sizes: Any,
    strides: Any = 1,
    paddings: Any = 0,
    dilations: Any = 1,
    name: str | None = None,
) -> Variable:
    """Return the patches of images as columns: [N, C k_h k_w, places]."""
    check_variable_and_dtype(x, "x", _WIDE, "unfold")
    if len(x.shape) != 4:
        raise ValueError(f"unfold takes images [N, C, H, W], but got shape {x.shape}.")
    if isinstance(paddings, list | tuple) and len(paddings) == 2:
        paddings = [*paddings, *paddings]
    attrs = {
        "kernel_sizes": convert_to_list(kernel_sizes, 2, "kernel_sizes"),
        "strides": convert_to_list(strides, 2, "strides"),
        "paddings": convert_to_list(paddings, 4, "paddings"),
        "dilations": convert_to_list(dilations, 2, "dilations"),
    }
    return _simple(LayerHelper("unfold", name=name), {"X": x}, attrs, x.dtype, "Y")


def random_crop(x: Variable, shape: list[int], seed: Any = None) -> Variable:
    """Cut a piece of the given shape out of each instance at random."""
    check_variable_and_dtype(x, "x", [*_WIDE, "uint8", "int16", "int32"], "random_crop")
    check_type(shape, "shape", list, "random_crop")
    if seed is not None and not isinstance(seed, int | Variable):
        raise ValueError(f"seed of random_crop must be a Variable or an int, not {seed!r}.")
    attrs = {"shape": shape, "startup_seed": seed if isinstance(seed, int) else 0}
    inputs = {"X": x, "Seed": seed if isinstance(seed, Variable) else None}
    return _simple(LayerHelper("random_crop"), inputs, attrs, x.dtype)


def add_position_encoding(
    input: Variable, alpha: float, beta: float, name: str | None = None
) -> Variable:
    """Return alpha * input + beta * (sines and cosines of the position)."""
    check_variable_and_dtype(input, "input", _WIDE, "add_position_encoding")
    helper = LayerHelper("add_position_encoding", name=name)
    return _simple(helper, {"X": input}, {"alpha": alpha, "beta": beta}, input.dtype)


def roi_pool(
    input: Variable,
    rois: Variable,
    pooled_height: int = 1,
    pooled_width: int = 1,
    spatial_scale: float = 1.0,
    rois_lod: Variable | None = None,
) -> Variable:
    """Take the maximum of each bin of boxes (left, top, right, bottom) of images."""
    check_type(input, "input", Variable, "roi_pool")
    check_type(rois, "rois", Variable, "roi_pool")
    helper = LayerHelper("roi_pool", input=input)
    out, _ = helper.outputs_of(
        "roi_pool",
        {"X": input, "ROIs": rois, "RoisLod": rois_lod},
        {
            "pooled_height": pooled_height,
            "pooled_width": pooled_width,
            "spatial_scale": spatial_scale,
        },
        Out=input.dtype,
        Argmax="int32",
    )
    return out


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
    """Average samples of each bin of boxes (left, top, right, bottom) of images."""
    check_variable_and_dtype(input, "input", _WIDE, "roi_align")
    check_variable_and_dtype(rois, "rois", _WIDE, "roi_align")
    attrs = {
        "pooled_height": pooled_height,
        "pooled_width": pooled_width,
        "spatial_scale": spatial_scale,
        "sampling_ratio": sampling_ratio,
    }
    inputs = {"X": input, "ROIs": rois, "RoisLod": rois_lod}
    return _simple(LayerHelper("roi_align", name=name), inputs, attrs, input.dtype)


def psroi_pool(
    input: Variable,
    rois: Variable,
    output_channels: int,
    spatial_scale: float,
    pooled_height: int,
    pooled_width: int,
    name: str | None = None,
) -> Variable:
    """Average each bin of boxes of images, where every bin has channels of its own.

    The input has output_channels * pooled_height * pooled_width channels.
    """
    check_type(input, "input", Variable, "psroi_pool")
    check_type(output_channels, "output_channels", int, "psroi_pool")
    check_type(spatial_scale, "spatial_scale", float, "psroi_pool")
    check_type(pooled_height, "pooled_height", int, "psroi_pool")
    check_type(pooled_width, "pooled_width", int, "psroi_pool")
    attrs = {
        "output_channels": output_channels,
        "spatial_scale": spatial_scale,
        "pooled_height": pooled_height,
        "pooled_width": pooled_width,
    }
    helper = LayerHelper("psroi_pool", name=name)
    return _simple(helper, {"X": input, "ROIs": rois}, attrs, input.dtype)


def similarity_focus(
    input: Variable, axis: int, indexes: list[int], name: str | None = None
) -> Variable:
    """Mark with ones where the slices `indexes` along `axis` of [N, A, B, C] are strongest."""
    check_variable_and_dtype(input, "input", _WIDE, "similarity_focus")
    check_type(axis, "axis", int, "similarity_focus")
    check_type(indexes, "indexes", list, "similarity_focus")
    if axis not in (1, 2, 3):
        raise ValueError(f"axis of similarity_focus must be 1, 2 or 3, not {axis}.")
    if not indexes:
        raise ValueError("indexes of similarity_focus must not be empty.")
    helper = LayerHelper("similarity_focus", name=name)
    return _simple(helper, {"X": input}, {"axis": axis, "indexes": indexes}, input.dtype)


export_defined(globals())
