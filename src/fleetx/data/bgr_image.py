"""Photographs as arrays of shape (height, width, channels) in BGR order: decode, scale, crop.

These are the functions of `paddle.dataset.image`. Decoding and scaling need Pillow, which is an
optional dependency.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from fleetx.data.image import pillow
from fleetx.data.local_files import files_in_tar
from fleetx.exports import export_defined

Image = np.ndarray[Any, Any]


def load_image_bytes(data: bytes, is_color: bool = True) -> Image:
    """Return the image in an encoded (JPEG, PNG, ...) byte string."""
    with pillow().open(io.BytesIO(data)) as image:
        if not is_color:
            return np.asarray(image.convert("L"))
        # BGR is the order of Paddle's image functions and of the means they subtract.
        return np.asarray(image.convert("RGB"))[:, :, ::-1]


def load_image(file: str | Path, is_color: bool = True) -> Image:
    """Return the image in a file."""
    return load_image_bytes(Path(file).read_bytes(), is_color)


def resize_short(im: Image, size: int) -> Image:
    """Scale an image so that its shorter side is `size`."""
    height, width = im.shape[:2]
    new = (size, size * height // width) if height > width else (size * width // height, size)
    image = pillow()
    scaled = image.fromarray(np.ascontiguousarray(im)).resize(new, image.Resampling.BICUBIC)
    return np.asarray(scaled)


def to_chw(im: Image, order: Sequence[int] = (2, 0, 1)) -> Image:
    """Move the channels to the front."""
    return im.transpose(order)


def center_crop(im: Image, size: int, is_color: bool = True) -> Image:
    """Crop a square from the centre."""
    top, left = ((side - size) // 2 for side in im.shape[:2])
    return im[top : top + size, left : left + size]


def random_crop(im: Image, size: int, is_color: bool = True) -> Image:
    """Crop a square at random (with NumPy's seed)."""
    top, left = (np.random.randint(0, side - size + 1) for side in im.shape[:2])
    return im[top : top + size, left : left + size]


def left_right_flip(im: Image, is_color: bool = True) -> Image:
    """Flip an image horizontally."""
    return im[:, ::-1]


def simple_transform(
    im: Image,
    resize_size: int,
    crop_size: int,
    is_train: bool,
    is_color: bool = True,
    mean: Any = None,
) -> Image:
    """Scale, crop (for training: at random, and flipped half the time), and subtract a mean.

    The result is float32 with channels first.
    """
    im = resize_short(im, resize_size)
    if is_train:
        im = random_crop(im, crop_size)
        if np.random.randint(2) == 0:
            im = left_right_flip(im)
    else:
        im = center_crop(im, crop_size)
    im = (to_chw(im) if im.ndim == 3 else im).astype("float32")
    if mean is not None:
        offset = np.asarray(mean, "float32")
        im = im - (offset[:, None, None] if offset.ndim == 1 and is_color else offset)
    return im


def load_and_transform(
    filename: str | Path,
    resize_size: int,
    crop_size: int,
    is_train: bool,
    is_color: bool = True,
    mean: Any = None,
) -> Image:
    """Load a file and apply `simple_transform`."""
    im = load_image(filename, is_color)
    return simple_transform(im, resize_size, crop_size, is_train, is_color, mean)


def batch_images_from_tar(
    data_file: str | Path,
    dataset_name: str,
    img2label: dict[str, Any],
    num_per_batch: int = 1024,
) -> str:
    """Write the images of an archive to batch files, and return the file that lists them.

    A batch is a pickled dictionary of `label` and `data` (encoded images). If the folder
    `<data_file>_batch/<dataset_name>` exists, nothing is written.
    """
    folder = Path(f"{data_file}_batch", dataset_name)
    listed = Path(f"{data_file}_batch", f"{dataset_name}.txt")
    if folder.exists():
        return str(listed)
    folder.mkdir(parents=True)
    found = (
        (img2label[name], stream.read())
        for name, stream in files_in_tar(data_file, img2label.__contains__)
    )
    while batch := list(islice(found, num_per_batch)):
        labels, images = map(list, zip(*batch, strict=True))
        path = folder / f"batch_{len(list(folder.iterdir()))}"
        path.write_bytes(pickle.dumps({"label": labels, "data": images}, protocol=2))
    paths = sorted(folder.resolve().iterdir(), key=lambda path: int(path.name.split("_")[1]))
    listed.write_text("".join(f"{path}\n" for path in paths), encoding="utf-8")
    return str(listed)


export_defined(globals())
