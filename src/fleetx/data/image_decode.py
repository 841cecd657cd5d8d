"""Photographs from bytes to arrays [height, width, 3] in R, G, B: only as much as is needed.

JPEG goes through simplejpeg (libjpeg-turbo): in a half, quarter or eighth of the size where that is
enough, and no further down than the last row that is needed. Everything else, and JPEGs that
it refuses (CMYK, unusual ones), goes through Pillow.
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
    """Bytes that no decoder takes for an image."""


class Header(NamedTuple):
    """What is known of an image before it is decoded."""

    width: int
    height: int
    colour: str
    frame: int  # where a JPEG's height stands; 0 if the image goes through Pillow


def read_header(data: bytes) -> Header:
    """Return an image's size and how it is to be decoded."""
    if data[:2] == b"\xff\xd8":
        try:
            height, width, colour, _ = simplejpeg.decode_jpeg_header(data, strict=False)
        except (ValueError, KeyError):  # the latter where the header is incomplete
            pass  # Pillow knows more kinds, and says what is wrong if it does not
        else:
            # A file that was cut off shows it by its end; Pillow then says so.
            if colour in ("YCbCr", "RGB", "Gray") and data.rstrip(b"\0")[-2:] == _END:
                return Header(width, height, colour, _frame(data))
    with _opened(data) as image:
        return Header(image.width, image.height, image.mode, 0)


def _frame(data: bytes) -> int:
    """Return where the height stands in a JPEG, or 0 if it is of an unusual kind."""
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
        raise UnreadableImage(f"it is no image that can be read ({error})") from error


def decode(data: bytes, header: Header, *, rows: int | None = None, factor: int = 1) -> Array:
    """Return the first `rows` rows or more (default: all), reduced by a factor of 1, 2, 4 or 8.

    Rows are counted before the reduction. Damage that leaves an image readable is let through, as
    other decoders do; `check_image` finds it.
    """
    if not header.frame:
        return _reduced(_by_pillow(data), factor)
    # Where colours have fewer rows than brightness, the last rows depend on the next.
    need = header.height if rows is None else min(header.height, rows + 2 * factor)
    try:
        return simplejpeg.decode_jpeg(
            data if need == header.height else _shortened(data, header.frame, need),
            "RGB",
            min_height=-(-need // factor) if factor > 1 else 0,
            min_width=-(-header.width // factor) if factor > 1 else 0,
            # What stands behind the rows that are wanted would count as damage.
            strict=False,
        )
    except ValueError:
        return _reduced(_by_pillow(data), factor)


def _shortened(data: bytes, frame: int, rows: int) -> bytearray:
    """Return a JPEG that says it has fewer rows: the decoder stops behind them."""
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
    """Decode all of an image, look for damage too, and return what it is."""
    header = read_header(data)
    if not header.frame:
        _by_pillow(data)
        return header
    try:
        simplejpeg.decode_jpeg(data, "RGB", strict=True)
    except ValueError as error:
        raise UnreadableImage(f"it is damaged ({error})") from error
    return header
