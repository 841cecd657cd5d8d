"""Decoding of images to arrays [height, width, 3] in R, G, B, as far as needed.

JPEG is decoded by simplejpeg (libjpeg-turbo): at a half, quarter or eighth of the size if that
suffices, and no further than the last row that is needed. Everything else, and JPEGs that it
rejects (CMYK, unusual ones), is decoded by Pillow.
"""

from __future__ import annotations

import io
from typing import Any, NamedTuple

import numpy as np

Array = np.ndarray[Any, Any]

try:
    import simplejpeg
    from PIL import Image
except ImportError as error:
    raise ModuleNotFoundError(
        f"reading images needs simplejpeg and Pillow ({error}): pip install 'fleetx[images]'."
    ) from error

_FRAMES = frozenset({0xC0, 0xC1, 0xC2})  # baseline, extended, progressive: Huffman-coded
_END = b"\xff\xd9"


class UnreadableImage(ValueError):
    """An error for bytes that no decoder recognises as an image."""


class Header(NamedTuple):
    """The properties of an image before it is decoded."""

    width: int
    height: int
    colour: str
    frame: int  # offset of a JPEG's height; 0 if Pillow decodes the image


def read_header(data: bytes) -> Header:
    """Return an image's size and how to decode it."""
    if data[:2] == b"\xff\xd8":
        try:
            height, width, colour, _ = simplejpeg.decode_jpeg_header(data, strict=False)
        except (ValueError, KeyError):  # the latter if the header is incomplete
            pass  # Pillow supports more formats, and otherwise reports the error
        else:
            # A truncated file is recognised by its end; Pillow then reports it.
            if colour in ("YCbCr", "RGB", "Gray") and data.rstrip(b"\0")[-2:] == _END:
                return Header(width, height, colour, _frame(data))
    with _opened(data) as image:
        return Header(image.width, image.height, image.mode, 0)


def _frame(data: bytes) -> int:
    """Return the offset of the height in a JPEG, or 0 if it is of an unusual kind."""
    at = 2
    while at + 8 < len(data) and data[at] == 0xFF:
        marker = data[at + 1]
        if marker in _FRAMES:
            return at + 5
        at += 2 + int.from_bytes(data[at + 2 : at + 4], "big")
    return 0


def _opened(data: bytes) -> Any:
    try:
        return Image.open(io.BytesIO(data))
    except (OSError, SyntaxError, ValueError) as error:
        raise UnreadableImage(f"it is not a readable image ({error})") from error


def decode(data: bytes, header: Header, *, rows: int | None = None, factor: int = 1) -> Array:
    """Return the first `rows` rows or more (default: all), reduced by a factor of 1, 2, 4 or 8.

    Rows are counted before the reduction. Damage that leaves an image readable is ignored, as
    in other decoders; `check_image` detects it.
    """
    if not header.frame:
        return _reduced(_by_pillow(data), factor)
    # With chroma subsampling, the last rows depend on the next.
    need = header.height if rows is None else min(header.height, rows + 2 * factor)
    try:
        return simplejpeg.decode_jpeg(
            data if need == header.height else _shortened(data, header.frame, need),
            "RGB",
            min_height=-(-need // factor) if factor > 1 else 0,
            min_width=-(-header.width // factor) if factor > 1 else 0,
            # The data after the required rows would count as damage.
            strict=False,
        )
    except ValueError:
        return _reduced(_by_pillow(data), factor)


def _shortened(data: bytes, frame: int, rows: int) -> bytearray:
    """Return a JPEG with a reduced height in its header: the decoder stops there."""
    shorter = bytearray(data)
    shorter[frame : frame + 2] = rows.to_bytes(2, "big")
    return shorter


def _by_pillow(data: bytes) -> Array:
    with _opened(data) as image:
        try:
            return np.asarray(image.convert("RGB"))
        except (OSError, SyntaxError, ValueError) as error:
            raise UnreadableImage(f"it cannot be decoded ({error})") from error


def _reduced(image: Array, factor: int) -> Array:
    return np.asarray(Image.fromarray(image).reduce(factor)) if factor > 1 else image


def check_image(data: bytes) -> Header:
    """Decode an image completely, check it for damage, and return its header."""
    header = read_header(data)
    if not header.frame:
        _by_pillow(data)
        return header
    try:
        simplejpeg.decode_jpeg(data, "RGB", strict=True)
    except ValueError as error:
        raise UnreadableImage(f"it is damaged ({error})") from error
    return header
