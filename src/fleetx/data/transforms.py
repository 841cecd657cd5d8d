"""Transforms of images, combined with `Compose`.

The names and arguments are those of `paddle.vision.transforms`; the work is done in `image.py`.
Randomness comes from `numpy.random`, so `numpy.random.seed` makes a run reproducible.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fleetx.data import image as images
from fleetx.exports import export_defined


class Compose:
    """A sequence of transforms, applied one after the other."""

    def __init__(self, transforms: Sequence[Callable[[Any], Any]]) -> None:
        self.transforms = transforms

    def __call__(self, data: Any) -> Any:
        """Return the transformed data; an error names the transform that failed."""
        for transform in self.transforms:
            try:
                data = transform(data)
            except Exception as error:
                error.add_note(f"in the transform {transform!r} of {self!r}")
                raise
        return data

    def __repr__(self) -> str:
        return f"Compose([{', '.join(repr(t) for t in self.transforms)}])"


class BaseTransform:
    """A transform of an image, or of a tuple whose parts `keys` name ("image", "boxes", ...).

    A subclass defines `_apply_image`, and `_apply_<key>` for other keys; `_get_params(inputs)` may
    draw random values once for all parts, which are then in `self.params`.
    """

    def __init__(self, keys: Sequence[str] | None = None) -> None:
        if keys is not None and not isinstance(keys, Sequence):
            raise ValueError(f"keys of {type(self).__name__} must be a list, not {keys!r}.")
        self.keys = ("image",) if keys is None else keys
        for key in self.keys:
            if self._get_apply(key) is None:
                raise NotImplementedError(f"{type(self).__name__} cannot transform {key!r}.")
        self.params: Any = None

    def _get_apply(self, key: str) -> Callable[[Any], Any] | None:
        return getattr(self, f"_apply_{key}", None)

    def _get_params(self, inputs: tuple[Any, ...]) -> Any:
        return None

    def _apply_image(self, image: Any) -> Any:
        raise NotImplementedError(f"{type(self).__name__} does not define _apply_image.")

    def __call__(self, inputs: Any) -> Any:
        """Return the transformed image, or a tuple if a tuple was given."""
        parts = inputs if isinstance(inputs, tuple) else (inputs,)
        self.params = self._get_params(parts)
        done = []
        for i, part in enumerate(parts):
            apply = self._get_apply(self.keys[i]) if i < len(self.keys) else None
            done.append(part if apply is None else apply(part))
        return done[0] if len(done) == 1 else tuple(done)

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class ToTensor(BaseTransform):
    """Conversion to a float32 array, channels first or last; bytes are scaled to 0..1."""

    def __init__(self, data_format: str = "CHW", keys: Sequence[str] | None = None) -> None:
        super().__init__(keys)
        self.data_format = data_format

    def _apply_image(self, image: Any) -> Any:
        return images.to_tensor(image, self.data_format)


class Resize(BaseTransform):
    """Resizing to (height, width), or of the shorter side to a given size."""

    def __init__(
        self,
        size: int | Sequence[int],
        interpolation: str = "bilinear",
        keys: Sequence[str] | None = None,
    ) -> None:
        super().__init__(keys)
        if not isinstance(size, int) and len(size) != 2:
            raise ValueError(f"size of Resize must be a number or (height, width), not {size!r}.")
        self.size = size
        self.interpolation = interpolation

    def _apply_image(self, image: Any) -> Any:
        return images.resize(image, self.size, self.interpolation)


class CenterCrop(BaseTransform):
    """A crop of the image's centre."""

    def __init__(self, size: int | Sequence[int], keys: Sequence[str] | None = None) -> None:
        super().__init__(keys)
        self.size = _pair(size)

    def _apply_image(self, image: Any) -> Any:
        return images.center_crop(image, self.size)


class RandomCrop(BaseTransform):
    """A crop of a given size at a random position; `padding` adds a border first."""

    def __init__(
        self,
        size: int | Sequence[int],
        padding: int | Sequence[int] | None = None,
        pad_if_needed: bool = False,
        fill: Any = 0,
        padding_mode: str = "constant",
        keys: Sequence[str] | None = None,
    ) -> None:
        super().__init__(keys)
        self.size = _pair(size)
        self.padding = padding
        self.pad_if_needed = pad_if_needed
        self.fill = fill
        self.padding_mode = padding_mode

    def _apply_image(self, image: Any) -> Any:
        height, width = self.size
        if self.padding is not None:
            image = images.pad(image, self.padding, self.fill, self.padding_mode)
        full_width, full_height = images.size_of(image)
        if self.pad_if_needed:
            border = (max(0, width - full_width), max(0, height - full_height))
            if any(border):
                image = images.pad(image, border, self.fill, self.padding_mode)
                full_width, full_height = images.size_of(image)
        if full_height < height or full_width < width:
            raise ValueError(
                f"RandomCrop cannot take {height}x{width} out of an image of "
                f"{full_height}x{full_width}; resize it before, or set pad_if_needed."
            )
        top = int(np.random.randint(0, full_height - height + 1))
        left = int(np.random.randint(0, full_width - width + 1))
        return images.crop(image, top, left, height, width)


class RandomResizedCrop(BaseTransform):
    """A random crop, by fraction of the area and aspect ratio, resized to a given size."""

    def __init__(
        self,
        size: int | Sequence[int],
        scale: Sequence[float] = (0.08, 1.0),
        ratio: Sequence[float] = (3.0 / 4, 4.0 / 3),
        interpolation: str = "bilinear",
        keys: Sequence[str] | None = None,
    ) -> None:
        super().__init__(keys)
        if scale[0] > scale[1] or ratio[0] > ratio[1]:
            raise ValueError(
                f"scale={scale} and ratio={ratio} of RandomResizedCrop must be (low, high)."
            )
        self.size = _pair(size)
        self.scale = scale
        self.ratio = ratio
        self.interpolation = interpolation

    def _choose(self, width: int, height: int) -> tuple[int, int, int, int]:
        """Return (top, left, height, width) of the part."""
        for _ in range(10):
            area = width * height * np.random.uniform(self.scale[0], self.scale[1])
            aspect = math.exp(np.random.uniform(math.log(self.ratio[0]), math.log(self.ratio[1])))
            w, h = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
            if 0 < w <= width and 0 < h <= height:
                top = int(np.random.randint(0, height - h + 1))
                return top, int(np.random.randint(0, width - w + 1)), h, w
        # No part of that shape fits: use the centre, as close to the shape as possible.
        aspect = min(max(width / height, self.ratio[0]), self.ratio[1])
        w = min(width, round(height * aspect))
        h = min(height, round(width / aspect))
        return (height - h) // 2, (width - w) // 2, h, w

    def _apply_image(self, image: Any) -> Any:
        part = images.crop(image, *self._choose(*images.size_of(image)))
        return images.resize(part, self.size, self.interpolation)


class _RandomFlip(BaseTransform):
    """A flip with a given probability."""

    _flip: Callable[[Any], Any]

    def __init__(self, prob: float = 0.5, keys: Sequence[str] | None = None) -> None:
        super().__init__(keys)
        if not 0 <= prob <= 1:
            raise ValueError(f"prob must be between 0 and 1, not {prob}.")
        self.prob = prob

    def _apply_image(self, image: Any) -> Any:
        return type(self)._flip(image) if np.random.random() < self.prob else image


class RandomHorizontalFlip(_RandomFlip):
    """A horizontal flip with a given probability."""

    _flip = staticmethod(images.hflip)


class RandomVerticalFlip(_RandomFlip):
    """A vertical flip with a given probability."""

    _flip = staticmethod(images.vflip)


class Normalize(BaseTransform):
    """(image - mean) / std with one mean and std per channel."""

    def __init__(
        self,
        mean: float | Sequence[float] = 0.0,
        std: float | Sequence[float] = 1.0,
        data_format: str = "CHW",
        to_rgb: bool = False,
        keys: Sequence[str] | None = None,
    ) -> None:
        super().__init__(keys)
        self.mean = [mean] * 3 if isinstance(mean, numbers.Number) else mean
        self.std = [std] * 3 if isinstance(std, numbers.Number) else std
        self.data_format = data_format
        self.to_rgb = to_rgb

    def _apply_image(self, image: Any) -> Any:
        return images.normalize(image, self.mean, self.std, self.data_format, self.to_rgb)


class Transpose(BaseTransform):
    """A permutation of the axes; channels first by default."""

    def __init__(self, order: Sequence[int] = (2, 0, 1), keys: Sequence[str] | None = None) -> None:
        super().__init__(keys)
        self.order = order

    def _apply_image(self, image: Any) -> Any:
        array = np.asarray(image)
        return (array[..., None] if array.ndim == 2 else array).transpose(self.order)


class Pad(BaseTransform):
    """A border: one width, (left/right, top/bottom), or (left, top, right, bottom)."""

    def __init__(
        self,
        padding: int | Sequence[int],
        fill: Any = 0,
        padding_mode: str = "constant",
        keys: Sequence[str] | None = None,
    ) -> None:
        super().__init__(keys)
        self.padding = padding
        self.fill = fill
        self.padding_mode = padding_mode

    def _apply_image(self, image: Any) -> Any:
        return images.pad(image, self.padding, self.fill, self.padding_mode)


class RandomRotation(BaseTransform):
    """A rotation by a random angle between two given ones (or -degrees and +degrees)."""

    def __init__(
        self,
        degrees: float | Sequence[float],
        interpolation: str = "nearest",
        expand: bool = False,
        center: Sequence[float] | None = None,
        fill: Any = 0,
        keys: Sequence[str] | None = None,
    ) -> None:
        super().__init__(keys)
        if isinstance(degrees, int | float):
            if degrees < 0:
                raise ValueError(f"degrees of RandomRotation must not be negative: {degrees}.")
            degrees = (-degrees, degrees)
        self.degrees = degrees
        self.interpolation = interpolation
        self.expand = expand
        self.center = center
        self.fill = fill

    def _apply_image(self, image: Any) -> Any:
        angle = float(np.random.uniform(self.degrees[0], self.degrees[1]))
        return images.rotate(image, angle, self.interpolation, self.expand, self.center, self.fill)


class Grayscale(BaseTransform):
    """Grayscale, as 1 or 3 equal channels."""

    def __init__(self, num_output_channels: int = 1, keys: Sequence[str] | None = None) -> None:
        super().__init__(keys)
        self.num_output_channels = num_output_channels

    def _apply_image(self, image: Any) -> Any:
        return images.to_grayscale(image, self.num_output_channels)


class _RandomColour(BaseTransform):
    """A change of a colour property by a random factor around its neutral value."""

    _adjust: Callable[[Any, float], Any]
    _neutral = 1.0

    def __init__(self, value: float | Sequence[float], keys: Sequence[str] | None = None) -> None:
        super().__init__(keys)
        neutral = self._neutral
        if isinstance(value, int | float):
            if value < 0:
                raise ValueError(f"value of {type(self).__name__} must not be negative: {value}.")
            low = neutral - value
            value = (max(0.0, low) if neutral else low, neutral + value)
        self.value = value

    def _apply_image(self, image: Any) -> Any:
        low, high = self.value
        if low == high == self._neutral:
            return image
        return type(self)._adjust(image, float(np.random.uniform(low, high)))


class BrightnessTransform(_RandomColour):
    """Brightness multiplied by a random factor."""

    _adjust = staticmethod(images.adjust_brightness)


class ContrastTransform(_RandomColour):
    """Contrast multiplied by a random factor."""

    _adjust = staticmethod(images.adjust_contrast)


class SaturationTransform(_RandomColour):
    """Saturation multiplied by a random factor."""

    _adjust = staticmethod(images.adjust_saturation)


class HueTransform(_RandomColour):
    """Hue shifted by a random fraction of the colour circle."""

    _adjust = staticmethod(images.adjust_hue)
    _neutral = 0.0


class ColorJitter(BaseTransform):
    """Random changes of brightness, contrast, saturation and hue, in random order."""

    def __init__(
        self,
        brightness: float | Sequence[float] = 0,
        contrast: float | Sequence[float] = 0,
        saturation: float | Sequence[float] = 0,
        hue: float | Sequence[float] = 0,
        keys: Sequence[str] | None = None,
    ) -> None:
        super().__init__(keys)
        self._parts = [
            BrightnessTransform(brightness),
            ContrastTransform(contrast),
            SaturationTransform(saturation),
            HueTransform(hue),
        ]

    def _apply_image(self, image: Any) -> Any:
        for i in np.random.permutation(len(self._parts)):
            image = self._parts[i](image)
        return image


def _pair(size: int | Sequence[int]) -> tuple[int, int]:
    return (size, size) if isinstance(size, int) else (size[0], size[1])


export_defined(globals())
