# ruff: noqa: PT028 - test() reads the test set; it is not a test.
"""MNIST: handwritten digits as (784 pixels from -1 to 1 in float32, label from 0 to 9)."""

from __future__ import annotations

import gzip
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from fleetx.data.local_files import find_file

Sample = tuple[np.ndarray[Any, Any], int]


def train(data_dir: str | Path | None = None) -> Callable[[], Iterator[Sample]]:
    """Return a reader of the 60000 training digits."""
    return _reader("train", data_dir)


def test(data_dir: str | Path | None = None) -> Callable[[], Iterator[Sample]]:
    """Return a reader of the 10000 test digits."""
    return _reader("t10k", data_dir)


def _reader(part: str, data_dir: str | Path | None) -> Callable[[], Iterator[Sample]]:
    images = find_file("mnist", f"{part}-images-idx3-ubyte.gz", data_dir=data_dir)
    labels = find_file("mnist", f"{part}-labels-idx1-ubyte.gz", data_dir=data_dir)
    return reader_creator(images, labels)


def reader_creator(
    image_filename: str | Path, label_filename: str | Path, buffer_size: int = 100
) -> Callable[[], Iterator[Sample]]:
    """Return a reader of the digits in two files; `buffer_size` is accepted, without effect."""
    images, labels = Path(image_filename), Path(label_filename)

    def reader() -> Iterator[Sample]:
        pixels, digits = read_idx(images, 3), read_idx(labels, 1)
        if len(pixels) != len(digits):
            raise ValueError(
                f"{images} holds {len(pixels)} images, but {labels} holds {len(digits)} labels."
            )
        for image, digit in zip(pixels, digits, strict=True):
            yield image.reshape(-1).astype("float32") / 255.0 * 2.0 - 1.0, int(digit)

    return reader


def read_idx(path: Path, dimensions: int) -> np.ndarray[Any, Any]:
    """Return the array of a gzipped IDX file of bytes with the given number of dimensions."""
    with gzip.open(path, "rb") as file:
        content = file.read()
    head = 4 + 4 * dimensions
    if len(content) < head or content[:4] != bytes([0, 0, 8, dimensions]):
        raise ValueError(f"{path} is not an IDX file of bytes with {dimensions} dimension(s).")
    shape = struct.unpack(f">{dimensions}I", content[4:head])
    data = np.frombuffer(content, np.uint8, offset=head)
    if data.size != np.prod(shape):
        raise ValueError(f"{path} announces shape {shape}, but holds {data.size} bytes.")
    return data.reshape(shape)
