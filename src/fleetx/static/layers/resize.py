"""Layers that resize images and volumes."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Sequence
from typing import Any

from fleetx.exports import export_defined
from fleetx.static.building.adapted import adapted
from fleetx.static.building.argument_checks import check_type
from fleetx.static.building.layer_helper import LayerHelper
from fleetx.static.building.one_op import tensor_list
from fleetx.static.building.spatial_variants import with_first
from fleetx.static.graph.variable import Variable
from fleetx.static.layers.window_args import check_choice

_METHODS = {
    "BILINEAR": ("bilinear", 4),
    "NEAREST": ("nearest", 4),
    "BICUBIC": ("bicubic", 4),
    "TRILINEAR": ("trilinear", 5),
    "LINEAR": ("linear", 3),
}
_FORMATS = {3: ("NCW", "NWC"), 4: ("NCHW", "NHWC"), 5: ("NCDHW", "NDHWC")}


def _check_sizes(sizes: Any, n: int) -> None:
    check_type(sizes, "out_shape", (list, tuple), "image_resize")
    if len(sizes) != n:
        raise ValueError(f"out_shape must have {n} numbers for this input, but is {sizes!r}.")
    for size in sizes:
        if not isinstance(size, Variable) and size <= 0:
            raise ValueError(f"out_shape must be greater than 0, but is {sizes!r}.")


def _interpolate(
    methods: Sequence[str],
    input: Variable,
    out_shape: Any = None,
    scale: Any = None,
    name: str | None = None,
    resample: str = "BILINEAR",
    actual_shape: Variable | None = None,
    align_corners: bool = True,
    align_mode: int = 1,
    data_format: str = "NCHW",
) -> Variable:
    """Resize images (BILINEAR, NEAREST, BICUBIC), volumes (TRILINEAR) or signals (LINEAR).

    Args:
        input: a batch of images or volumes.
        out_shape: the new size, as numbers, Variables or one Variable; overrides `scale`.
        scale: the scale factor, a number or a Variable.
        resample: the interpolation method.
        actual_shape: a Variable with the size; overrides `out_shape`.
        align_corners: whether the corners of both images coincide.
        align_mode: without align_corners, 0 aligns pixel centres, 1 their upper left corners.
        data_format: the layout of the input.
    """
    check_choice(resample, "resample", methods, "image_resize")
    method, rank = _METHODS[resample]
    if len(input.shape) != rank:
        raise ValueError(
            f"{resample} takes an input of {rank} dimensions, but its shape is {input.shape}."
        )
    check_type(align_corners, "align_corners", bool, "image_resize")
    check_choice(align_mode, "align_mode", (0, 1), "image_resize")
    if out_shape is None and scale is None:
        raise ValueError("image_resize needs out_shape or scale.")
    check_choice(data_format, "data_format", _FORMATS[rank], "image_resize")
    helper = LayerHelper(f"{method}_interp", name=name)
    inputs: dict[str, Any] = {"X": input}
    attrs: dict[str, Any] = {"out_d": -1, "out_h": -1, "out_w": -1}
    if isinstance(out_shape, Variable):
        out_shape.stop_gradient = True
        inputs["OutSize"] = out_shape
    elif out_shape is not None:
        _check_sizes(out_shape, rank - 2)
        if any(isinstance(size, Variable) for size in out_shape):
            inputs["SizeTensor"] = tensor_list(helper, out_shape)
        for key, size in zip(("out_d", "out_h", "out_w")[4 - rank + 1 :], out_shape, strict=True):
            attrs[key] = -1 if isinstance(size, Variable) else int(size)
    elif isinstance(scale, Variable):
        scale.stop_gradient = True
        inputs["Scale"] = scale
    else:
        check_type(scale, "scale", (float, int), "image_resize")
        if scale <= 0:
            raise ValueError(f"scale of image_resize must be greater than 0, but is {scale}.")
        attrs["scale"] = float(scale)
    if actual_shape is not None:
        check_type(actual_shape, "actual_shape", Variable, "image_resize")
        warnings.warn("actual_shape is deprecated: give a Variable as out_shape.", stacklevel=3)
        actual_shape.stop_gradient = True
        inputs["OutSize"] = actual_shape
    attrs |= {
        "interp_method": method,
        "align_corners": align_corners,
        "align_mode": align_mode,
        "data_layout": "NHWC" if data_format.endswith("C") else "NCHW",
    }
    return helper.output_of(f"{method}_interp", inputs, attrs, dtype=input.dtype)


interpolate = with_first(_interpolate, "interpolate", tuple(_METHODS))
image_resize = with_first(
    _interpolate,
    "image_resize",
    ("BILINEAR", "TRILINEAR", "NEAREST", "LINEAR"),
    doc="Resize images (BILINEAR, NEAREST), volumes (TRILINEAR) or signals (LINEAR); see "
    "`interpolate`.",
)
_SIZES = "input, out_shape, scale, name, actual_shape, align_corners"
_resize = functools.partial(adapted, image_resize, f"{_SIZES}, align_mode, data_format")
_DOC = "Resize {} by linear interpolation; see `interpolate`."
resize_bilinear = _resize(
    name="resize_bilinear", doc=_DOC.format("images"), fixed={"resample": "BILINEAR"}
)
resize_linear = _resize(
    name="resize_linear",
    doc=_DOC.format("signals"),
    fixed={"resample": "LINEAR"},
    data_format="NCW",
)
resize_trilinear = _resize(
    name="resize_trilinear",
    doc=_DOC.format("volumes"),
    fixed={"resample": "TRILINEAR"},
    data_format="NCDHW",
)
resize_nearest = adapted(
    image_resize,
    f"{_SIZES}, data_format",
    name="resize_nearest",
    doc="Resize images by taking the nearest pixel; see `interpolate`.",
    fixed={"resample": "NEAREST"},
)


def image_resize_short(input: Variable, out_short_len: int, resample: str = "BILINEAR") -> Variable:
    """Resize images so that the shorter side has the given length; keep the aspect ratio."""
    if len(input.shape) != 4:
        raise ValueError(f"image_resize_short takes 4 dimensions, but got shape {input.shape}.")
    sizes = list(input.shape[2:4])
    short = sizes.index(min(sizes))
    factor = float(out_short_len) / float(sizes[short])
    sizes[1 - short] = int(float(sizes[1 - short]) * factor + 0.5)
    sizes[short] = out_short_len
    return image_resize(input, out_shape=sizes, resample=resample)


export_defined(globals())
