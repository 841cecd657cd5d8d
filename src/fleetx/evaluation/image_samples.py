"""Samples that are photographs of an ImageNet list, prepared as for validation.

The short side is resized, the centre cropped, and mean and standard deviation are applied
(fleetx.data). Other ways of cropping a square from a photograph serve to recognise an endpoint that
uses one of them.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch.nn.functional import interpolate

from fleetx.data.image_decode import Image, UnreadableImage
from fleetx.data.imagenet_augment import Augment, Normalizer, Pictures
from fleetx.data.imagenet_list import ImageList, read_list
from fleetx.evaluation.evaluation_error import EvaluationError
from fleetx.evaluation.samples import Arrays, Samples
from fleetx.serving.tensor_spec import TensorSpec

_LIST = "val.txt"
_SWAP = "swap the channels (BGR for RGB) before mean and deviation are applied"
# Labels are not used: any valid one.
_ANY_LABEL = 1 << 62


# Writes the normalised picture of a photograph.
_Way = Callable[[bytes, Augment, np.ndarray], None]


@dataclass(frozen=True)
class ImageSamples(Samples):
    """The photographs of a list; their ids are its paths."""

    images: ImageList
    name: str
    """The model's input."""
    augment: Augment
    channels_last: bool

    @property
    def total(self) -> int:
        """The number of photographs of the list."""
        return len(self.images)

    def ids(self, start: int, stop: int) -> list[str]:
        """Return the paths of a range."""
        return [self.images.name(i) for i in range(start, stop)]

    @property
    def id_width(self) -> int:
        """The number of bytes of the longest path."""
        return max(len(self.images.name(i).encode()) for i in range(len(self.images)))

    def read(self, start: int, stop: int) -> Arrays:
        """Return the pictures of a range."""
        return self._pictures(start, stop, _cut)

    def sources(self, start: int, stop: int) -> list[str]:
        """Return the files of a range."""
        return [self.images.path(i) for i in range(start, stop)]

    def variants(self, start: int, stop: int) -> Iterator[tuple[str, Arrays]]:
        """Yield the pictures prepared in other common ways, each also with swapped channels."""
        size, short = self.augment.crop_size, self.augment.resize_short_size
        ways: dict[str, _Way] = {
            f"resize the short side to {size} instead of {short}": partial(_cut, short=size),
            f"squeeze whole pictures into {size} × {size}": partial(
                _by_pillow, short=None, filter="BILINEAR"
            ),
            **{
                f"resize with the filter {filter.lower()} instead of bilinear": partial(
                    _by_pillow, short=short, filter=filter
                )
                for filter in ("BICUBIC", "LANCZOS", "NEAREST", "BOX")
            },
            "resize without smoothing first": partial(_unsmoothed, short=short),
            "cut the middle out without resizing": partial(_by_pillow, short=0, filter="BILINEAR"),
        }
        yield _SWAP, self._pictures(start, stop, _cut, swap=True)
        for words, way in ways.items():
            yield words, self._pictures(start, stop, way)
            yield f"{words}, and to {_SWAP}", self._pictures(start, stop, way, swap=True)

    def _pictures(self, start: int, stop: int, way: _Way, *, swap: bool = False) -> Arrays:
        size, augment = self.augment.crop_size, self.augment
        if swap:
            # Blue gets the values of red, and vice versa.
            augment = replace(augment, mean=augment.mean[::-1], std=augment.std[::-1])
        values = np.empty((stop - start, 3, size, size), np.float32)
        for i in range(start, stop):
            try:
                way(self.images.read(i), augment, values[i - start])
            except (OSError, UnreadableImage) as error:
                raise EvaluationError(f"{self.images.problem(i, error)}.") from error
        if swap:
            values = values[:, ::-1]
        if self.channels_last:
            values = values.transpose(0, 2, 3, 1)
        return {self.name: np.ascontiguousarray(values)}


def _cut(data: bytes, augment: Augment, out: np.ndarray, *, short: int | None = None) -> None:
    """Prepare a photograph as for validation, optionally with another short side."""
    if short is not None:
        augment = replace(augment, resize_short_size=short)
    Pictures(augment).validation(data, out)


def _by_pillow(
    data: bytes, augment: Augment, out: np.ndarray, *, short: int | None, filter: str
) -> None:
    """Write the centre after resizing the short side (0: unchanged; None: both sides)."""
    size = augment.crop_size
    image = Image.open(io.BytesIO(data)).convert("RGB")
    if short is None:
        image = image.resize((size, size), Image.Resampling[filter])
    else:
        target = max(short or min(image.size), size)
        scale = target / min(image.size)
        sides = (round(image.width * scale), round(image.height * scale))
        if sides != image.size:
            image = image.resize(sides, Image.Resampling[filter])
    _normalise(_middle(np.asarray(image), size), augment, out)


def _unsmoothed(data: bytes, augment: Augment, out: np.ndarray, *, short: int) -> None:
    """Write the centre after resizing as in OpenCV: from the nearest four pixels only."""
    pixels = np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))
    height, width = (round(side * short / min(pixels.shape[:2])) for side in pixels.shape[:2])
    values = torch.from_numpy(pixels.astype(np.float32)).permute(2, 0, 1)[None]
    values = interpolate(values, (height, width), mode="bilinear", align_corners=False)[0]
    rounded = values.round().clamp(0, 255).permute(1, 2, 0).byte().numpy()
    _normalise(_middle(rounded, augment.crop_size), augment, out)


def _normalise(picture: np.ndarray, augment: Augment, out: np.ndarray) -> None:
    Normalizer(augment)(torch.from_numpy(np.ascontiguousarray(picture)), out)


def _middle(pixels: np.ndarray, size: int) -> np.ndarray:
    top, left = ((side - size) // 2 for side in pixels.shape[:2])
    return pixels[top : top + size, left : left + size].transpose(2, 0, 1)


def image_samples(
    path: Path,
    specs: Sequence[TensorSpec],
    *,
    resize_short_size: int | None = None,
    mean: tuple[float, float, float] | None = None,
    std: tuple[float, float, float] | None = None,
) -> ImageSamples:
    """Return the samples of a list, or of a folder with `val.txt`."""
    file = path / _LIST if path.is_dir() else path
    images = read_list(file, num_classes=_ANY_LABEL)
    spec = specs[0]
    sides = spec.shape[1:]
    last = len(sides) == 3 and sides[0] != 3 and sides[2] == 3
    place = sides[:2] if last else sides[1:]
    is_picture = len(sides) == 3 and 3 in (sides[0], sides[2])
    if len(specs) != 1 or spec.dtype != "float32" or not is_picture:
        raise EvaluationError(
            f"{file} lists photographs, which need a model with one input float32 [any, 3, height, "
            f"width]; this one takes {', '.join(f'{each.name}: {each}' for each in specs)}."
        )
    if place[0] != place[1]:
        raise EvaluationError(
            f"input {spec.name!r} is {spec}, but photographs are cut into squares; prepare the "
            "samples in a file instead."
        )
    size = 224 if place[0] < 0 else place[0]
    usual = Augment()
    # The same margin as 256 has around 224.
    short = resize_short_size or round(size * usual.resize_short_size / usual.crop_size)
    try:
        augment = Augment(
            crop_size=size,
            resize_short_size=short,
            mean=mean or usual.mean,
            std=std or usual.std,
        )
    except ValueError as error:
        raise EvaluationError(str(error)) from error
    return ImageSamples(images, spec.name, augment, last)
