"""Functions on single images: resize, crop, flip, pad, colour, to array.

An image is a Pillow image or a NumPy array [height, width] or [height, width, channels]; the result
is of the same kind. Arrays are also resized with Pillow's filters, so both kinds give the same
picture. Pillow is required only for files, resizing and colour.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

_BACKENDS = ("pil", "cv2")
_backend = "pil"


def set_image_backend(backend: str) -> None:
    """Set the type of loaded images: 'pil' (Pillow images) or 'cv2' (arrays, B, G, R)."""
    global _backend
    if backend not in _BACKENDS:
        raise ValueError(f"the image backend must be one of {_BACKENDS}, not {backend!r}.")
    _backend = backend


def get_image_backend() -> str:
    """Return the type of loaded images."""
    return _backend


def image_load(path: str, backend: str | None = None) -> Any:
    """Load an image file; see `set_image_backend` for the type of the result."""
    backend = _backend if backend is None else backend
    if backend not in _BACKENDS:
        raise ValueError(f"the image backend must be one of {_BACKENDS}, not {backend!r}.")
    with pillow().open(path) as file:
        file.load()
        return file if backend == "pil" else np.asarray(file.convert("RGB"))[:, :, ::-1].copy()


def pillow() -> Any:
    """Return Pillow's module `Image`."""
    try:
        from PIL import Image
    except ImportError as error:
        raise ImportError("Images need Pillow: pip install pillow.") from error
    return Image


def is_pillow(image: Any) -> bool:
    """Return whether an image is a Pillow image."""
    return not isinstance(image, np.ndarray) and hasattr(image, "getbands")


def _check(image: Any) -> None:
    if is_pillow(image) or (isinstance(image, np.ndarray) and image.ndim in (2, 3)):
        return
    shape = f" of shape {image.shape}" if isinstance(image, np.ndarray) else ""
    raise TypeError(
        "an image must be a Pillow image or an array [height, width(, channels)], "
        f"not {type(image).__name__}{shape}."
    )


def size_of(image: Any) -> tuple[int, int]:
    """Return (width, height)."""
    _check(image)
    return image.size if is_pillow(image) else (image.shape[1], image.shape[0])


def _filter(name: str) -> Any:
    resampling = pillow().Resampling
    names = {
        "nearest": resampling.NEAREST,
        "bilinear": resampling.BILINEAR,
        "bicubic": resampling.BICUBIC,
        "lanczos": resampling.LANCZOS,
        "box": resampling.BOX,
        "area": resampling.BOX,
        "hamming": resampling.HAMMING,
    }
    if name not in names:
        raise ValueError(f"interpolation must be one of {', '.join(names)}, not {name!r}.")
    return names[name]


def _by_channel(image: Array, function: Any) -> Array:
    """Apply a function on Pillow images to an array, channel by channel, keeping its type."""
    planes = image[:, :, None] if image.ndim == 2 else image
    whole = np.float32 if image.dtype != np.uint8 else np.uint8
    done = [
        np.asarray(function(pillow().fromarray(np.ascontiguousarray(planes[:, :, i], dtype=whole))))
        for i in range(planes.shape[2])
    ]
    result = np.stack(done, axis=2)
    if np.issubdtype(image.dtype, np.integer) and whole is np.float32:
        result = np.rint(result)
    result = result.astype(image.dtype)
    return result[:, :, 0] if image.ndim == 2 else result


def resize(image: Any, size: int | Sequence[int], interpolation: str = "bilinear") -> Any:
    """Resize to (height, width), or the shorter side to a given size."""
    width, height = size_of(image)
    if isinstance(size, int):
        short = min(width, height)
        if short == size:
            return image
        target = (size * width // short, size * height // short)
    else:
        target = (int(size[1]), int(size[0]))
    resample = _filter(interpolation)
    if is_pillow(image):
        return image.resize(target, resample)
    return _by_channel(image, lambda plane: plane.resize(target, resample))


def crop(image: Any, top: int, left: int, height: int, width: int) -> Any:
    """Return the given part of the image."""
    _check(image)
    if is_pillow(image):
        return image.crop((left, top, left + width, top + height))
    return image[top : top + height, left : left + width]


def center_crop(image: Any, output_size: int | Sequence[int]) -> Any:
    """Return the centre of the image, of size (height, width)."""
    height, width = _pair(output_size)
    full_width, full_height = size_of(image)
    top = int(round((full_height - height) / 2.0))
    left = int(round((full_width - width) / 2.0))
    return crop(image, top, left, height, width)


def _pair(size: int | Sequence[int]) -> tuple[int, int]:
    return (int(size), int(size)) if isinstance(size, int | np.integer) else (size[0], size[1])


def hflip(image: Any) -> Any:
    """Return the image flipped horizontally."""
    _check(image)
    if is_pillow(image):
        return image.transpose(pillow().Transpose.FLIP_LEFT_RIGHT)
    return np.ascontiguousarray(image[:, ::-1])


def vflip(image: Any) -> Any:
    """Return the image flipped vertically."""
    _check(image)
    if is_pillow(image):
        return image.transpose(pillow().Transpose.FLIP_TOP_BOTTOM)
    return np.ascontiguousarray(image[::-1])


_PAD_MODES = ("constant", "edge", "reflect", "symmetric")


def pad(
    image: Any, padding: int | Sequence[int], fill: Any = 0, padding_mode: str = "constant"
) -> Any:
    """Add a border: one width, (left/right, top/bottom), or (left, top, right, bottom)."""
    _check(image)
    if padding_mode not in _PAD_MODES:
        raise ValueError(
            f"padding_mode must be one of {', '.join(_PAD_MODES)}, not {padding_mode!r}."
        )
    widths = [padding] if isinstance(padding, int) else list(padding)
    if len(widths) not in (1, 2, 4):
        raise ValueError(f"padding must be a number or a list of 2 or 4 numbers, not {padding!r}.")
    left, top, right, bottom = (widths * (4 // len(widths)))[:4]
    array = np.asarray(image)
    sides = [(top, bottom), (left, right)] + [(0, 0)] * (array.ndim - 2)
    if padding_mode != "constant":
        done = np.pad(array, sides, mode=padding_mode)  # type: ignore[call-overload]
    elif isinstance(fill, int | float):
        done = np.pad(array, sides, constant_values=fill)
    else:
        done = np.empty(
            [d + a + b for d, (a, b) in zip(array.shape, sides, strict=True)], array.dtype
        )
        done[...] = np.asarray(fill, dtype=array.dtype)
        done[top : top + array.shape[0], left : left + array.shape[1]] = array
    return _like(done, image)


def _like(array: Array, image: Any) -> Any:
    """Return an array as the same kind of image as `image`."""
    return pillow().fromarray(array) if is_pillow(image) else array


def rotate(
    image: Any,
    angle: float,
    interpolation: str = "nearest",
    expand: bool = False,
    center: Sequence[float] | None = None,
    fill: Any = 0,
) -> Any:
    """Return the image rotated counter-clockwise by an angle in degrees."""
    _check(image)

    def turn(plane: Any, colour: Any = fill) -> Any:
        return plane.rotate(angle, _filter(interpolation), expand, center, fillcolor=colour)

    if is_pillow(image):
        bands = len(image.getbands())
        colour = (fill,) * bands if isinstance(fill, int) and bands > 1 else fill
        return turn(image, colour)
    return _by_channel(image, turn)


def to_grayscale(image: Any, num_output_channels: int = 1) -> Any:
    """Return the image in grayscale, as 1 or 3 equal channels."""
    _check(image)
    if num_output_channels not in (1, 3):
        raise ValueError(f"num_output_channels must be 1 or 3, not {num_output_channels}.")
    grey = _picture(image).convert("L")
    array = np.asarray(grey)
    if num_output_channels == 3:
        array = np.stack([array] * 3, axis=2)
    elif not is_pillow(image) and image.ndim == 3:
        array = array[:, :, None]
    return _like(array, image)


def _picture(image: Any) -> Any:
    """Return an image as a Pillow image, in bytes if it is an array."""
    if is_pillow(image):
        return image
    is_plane = image.ndim == 3 and image.shape[2] == 1
    return pillow().fromarray(image[:, :, 0] if is_plane else image.astype(np.uint8))


def _enhance(image: Any, name: str, factor: float) -> Any:
    _check(image)
    picture = _picture(image)
    from PIL import ImageEnhance

    done = getattr(ImageEnhance, name)(picture).enhance(factor)
    return done if is_pillow(image) else np.asarray(done).astype(image.dtype).reshape(image.shape)


def adjust_brightness(image: Any, brightness_factor: float) -> Any:
    """Return the image with its brightness scaled; 0 is black, 1 unchanged."""
    return _enhance(image, "Brightness", brightness_factor)


def adjust_contrast(image: Any, contrast_factor: float) -> Any:
    """Return the image with its contrast scaled; 0 is grey, 1 unchanged."""
    return _enhance(image, "Contrast", contrast_factor)


def adjust_saturation(image: Any, saturation_factor: float) -> Any:
    """Return the image with its saturation scaled; 0 is grey, 1 unchanged."""
    return _enhance(image, "Color", saturation_factor)


def adjust_hue(image: Any, hue_factor: float) -> Any:
    """Return the image with its hue shifted by a fraction of the colour circle, -0.5 to 0.5."""
    _check(image)
    if not -0.5 <= hue_factor <= 0.5:
        raise ValueError(f"hue_factor must be between -0.5 and 0.5, not {hue_factor}.")
    picture = _picture(image)
    if picture.mode in ("L", "1", "I", "F"):
        return image
    hue, saturation, value = picture.convert("HSV").split()
    turned = (np.asarray(hue).astype(np.int16) + round(hue_factor * 255)) % 256
    bands = (pillow().fromarray(turned.astype(np.uint8)), saturation, value)
    done = pillow().merge("HSV", bands).convert(picture.mode)
    return done if is_pillow(image) else np.asarray(done).astype(image.dtype)


def to_tensor(image: Any, data_format: str = "CHW") -> Array:
    """Return a float32 array, channels first ('CHW') or last ('HWC'); bytes are scaled to 0..1."""
    _check(image)
    if data_format not in ("CHW", "HWC"):
        raise ValueError(f"data_format must be 'CHW' or 'HWC', not {data_format!r}.")
    array = np.asarray(image)
    if array.ndim == 2:
        array = array[:, :, None]
    scaled = array.astype(np.float32)
    if array.dtype == np.uint8:
        scaled /= 255.0
    return np.ascontiguousarray(scaled.transpose(2, 0, 1)) if data_format == "CHW" else scaled


def normalize(
    image: Any, mean: Any, std: Any, data_format: str = "CHW", to_rgb: bool = False
) -> Array:
    """Return (image - mean) / std as float32, with one mean and std per channel."""
    if data_format not in ("CHW", "HWC"):
        raise ValueError(f"data_format must be 'CHW' or 'HWC', not {data_format!r}.")
    array = np.asarray(image, dtype=np.float32)
    if to_rgb:
        array = array[::-1] if data_format == "CHW" else array[..., ::-1]
    shape = (-1, 1, 1) if data_format == "CHW" else (1, 1, -1)
    mean = np.asarray(mean, dtype=np.float32).reshape(shape)
    std = np.asarray(std, dtype=np.float32).reshape(shape)
    return (array - mean) / std
