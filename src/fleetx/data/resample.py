"""Resizing a part of a photograph, mirroring and normalising it: compiled, or by Pillow.

`resample(pixels, box, out, flip, scale, shift)` writes the part `box` = (left, top, width, height)
of bytes [height, width, 3] to float32 [3, height, width], times scale plus shift per colour.
"""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Box = tuple[float, float, float, float]
Colours = tuple[float, float, float]


def resample_by_pillow(
    pixels: Array, box: Box, out: Array, flip: bool, scale: Colours, shift: Colours
) -> None:
    """Do the same with Pillow, which rounds to whole bytes on the way."""
    from PIL import Image

    left, top, width, height = box
    # Pillow takes no box that is beyond the image by a rounding error.
    right, bottom = min(left + width, pixels.shape[1]), min(top + height, pixels.shape[0])
    whole = Image.fromarray(np.ascontiguousarray(pixels))
    part = whole.resize(
        (out.shape[2], out.shape[1]), Image.Resampling.BILINEAR, box=(left, top, right, bottom)
    )
    resized = np.asarray(part)
    out[...] = (resized[:, ::-1] if flip else resized).transpose(2, 0, 1)
    np.multiply(out, np.array(scale, np.float32).reshape(3, 1, 1), out=out)
    np.add(out, np.array(shift, np.float32).reshape(3, 1, 1), out=out)


try:
    from fleetx.data._resample import resample
except ImportError:  # not compiled: the same pictures, more slowly
    resample = resample_by_pillow
