"""From an ImageNet photograph to the input of a network: crop, resize, flip, normalise.

For training, a random part of the image is resized to the crop's size and flipped half the time;
for validation, the short side is resized and the centre cropped. Randomness is a function of the
seed, the epoch and the image's index: any process, in any order, produces the same picture.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from fleetx.data.image_decode import decode, read_header
from fleetx.kernels.resample import resample

Array = np.ndarray[Any, Any]
Box = tuple[int, int, int, int]
_MASK = (1 << 64) - 1


@dataclass(frozen=True, kw_only=True)
class Augment:
    """The augmentation of images; the names are those of Fleet's options."""

    crop_size: int = 224
    """Height and width of the result."""
    lower_scale: float = 0.08
    """For training: the minimum fraction of the image's area that is cropped."""
    lower_ratio: float = 3 / 4
    """For training: the minimum aspect ratio (width to height) of the part."""
    upper_ratio: float = 4 / 3
    """For training: the maximum aspect ratio (width to height) of the part."""
    flip: float = 0.5
    """For training: the probability of a flip."""
    resize_short_size: int = 256
    """For validation: the size of the short side before the centre is cropped."""
    mean: tuple[float, float, float] = (0.485, 0.456, 0.406)
    """Subtracted from red, green and blue, as a fraction of full brightness."""
    std: tuple[float, float, float] = (0.229, 0.224, 0.225)
    """The standard deviation by which the difference is divided."""

    def __post_init__(self) -> None:
        if self.crop_size < 1:
            raise ValueError(f"crop_size={self.crop_size} must be at least 1.")
        if not 0 < self.lower_scale <= 1:
            raise ValueError(f"lower_scale={self.lower_scale} must be above 0 and at most 1.")
        if not 0 < self.lower_ratio <= self.upper_ratio:
            raise ValueError(
                f"lower_ratio={self.lower_ratio} must be above 0 and at most "
                f"upper_ratio={self.upper_ratio}."
            )
        if not 0 <= self.flip <= 1:
            raise ValueError(f"flip={self.flip} must be between 0 and 1.")
        if self.resize_short_size < self.crop_size:
            raise ValueError(
                f"resize_short_size={self.resize_short_size} must be at least "
                f"crop_size={self.crop_size}."
            )
        if len(self.mean) != 3 or len(self.std) != 3 or not all(self.std):
            raise ValueError(
                f"mean={self.mean} and std={self.std} need three numbers each, std without zeros."
            )


def draw(seed: int, epoch: int, index: int, count: int) -> list[float]:
    """Return numbers from 0 to below 1 that depend only on the arguments (SplitMix64)."""
    state = _mix(_mix(_mix(seed & _MASK) ^ epoch) ^ index)
    return [
        _mix((state + 0x9E3779B97F4A7C15 * step) & _MASK) / 2.0**64 for step in range(1, count + 1)
    ]


def _mix(value: int) -> int:
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9 + 0x9E3779B97F4A7C15) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)


def random_box(width: int, height: int, chance: list[float], augment: Augment) -> Box:
    """Return (left, top, width, height) of a part of random shape and area, from four numbers.

    An area too large for the shape is never drawn, so no retry is needed.
    """
    shape, share, across, down = chance[:4]
    low, high = augment.lower_ratio, augment.upper_ratio
    ratio = low + (high - low) * shape
    most = min(1.0, width / (height * ratio), height * ratio / width)
    least = min(augment.lower_scale, most)
    area = width * height * (least + (most - least) * share)
    w = min(width, max(1, int(math.sqrt(area * ratio))))
    h = min(height, max(1, int(math.sqrt(area / ratio))))
    return int(across * (width - w + 1)), int(down * (height - h + 1)), w, h


def random_part(width: int, height: int, chance: list[float], augment: Augment) -> tuple[Box, int]:
    """Return a random box and the factor by which the decoder may reduce it to whole pixels."""
    box = random_box(width, height, chance, augment)
    factor = _factor(min(box[2:]), augment.crop_size)
    left, top, w, h = (side // factor * factor for side in box)
    return (left, top, w, h), factor


def _factor(have: int, need: int) -> int:
    """Return the factor by which a decoder may downscale an image without losing resolution."""
    return next((factor for factor in (8, 4, 2) if have >= need * factor), 1)


class Normalizer:
    """(pixel / 255 - mean) / std of every channel, as one multiplication and one addition."""

    def __init__(self, augment: Augment) -> None:
        pairs = list(zip(augment.mean, augment.std, strict=True))
        self.scale = _three(1 / (255 * std) for _, std in pairs)
        self.shift = _three(-mean / std for mean, std in pairs)

    def __call__(self, pictures: torch.Tensor, out: Array) -> None:
        """Write a picture of bytes, or a batch of them, to a float32 array of the same shape."""
        np.multiply(pictures.numpy(), np.asarray(self.scale, np.float32).reshape(3, 1, 1), out=out)
        np.add(out, np.asarray(self.shift, np.float32).reshape(3, 1, 1), out=out)


class Pictures:
    """Converter of photographs to pictures [3, size, size]: normalised float32, or bytes."""

    def __init__(self, augment: Augment) -> None:
        self.augment = augment
        self._normalizer = Normalizer(augment)

    def train(self, data: bytes, chance: list[float], out: Array) -> None:
        """Write a random part of an image, selected by five numbers from 0 to 1."""
        header = read_header(data)
        (left, top, width, height), factor = random_part(
            header.width, header.height, chance, self.augment
        )
        image = decode(data, header, rows=top + height, factor=factor)
        left, top, width, height = left // factor, top // factor, width // factor, height // factor
        part = image[top : top + height, left : left + width]
        self._write(part, (0, 0, width, height), chance[4] < self.augment.flip, out)

    def validation(self, data: bytes, out: Array) -> None:
        """Write the centre of an image after resizing its short side."""
        augment, header = self.augment, read_header(data)
        short, size = min(header.width, header.height), augment.crop_size
        image = decode(data, header, factor=_factor(short, augment.resize_short_size))
        box = []
        for side, pixels in ((header.width, image.shape[1]), (header.height, image.shape[0])):
            resized = round(side * augment.resize_short_size / short)
            # The crop of the resized image, in pixels of the decoded one.
            box.append(((resized - size) // 2 * pixels / resized, size * pixels / resized))
        (left, width), (top, height) = box
        self._write(image, (left, top, width, height), False, out)

    def _write(self, image: Array, box: Any, flip: bool, out: Array) -> None:
        if out.dtype != np.uint8:
            resample(image, box, out, flip, self._normalizer.scale, self._normalizer.shift)
            return
        exact = np.empty(out.shape, np.float32)
        resample(image, box, exact, flip, (1, 1, 1), (0, 0, 0))
        np.rint(exact, out=exact)
        out[...] = exact


def _three(values: Iterable[float]) -> tuple[float, float, float]:
    red, green, blue = values
    return red, green, blue
