# ruff: noqa: PT028 - test() reads the test set; it is not a test.
"""PASCAL VOC 2012, segmentation: (photograph [H, W, 3], class of every pixel [H, W]) in uint8."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from fleetx.data.image import pillow
from fleetx.data.local_files import file_in_tar, find_file

Sample = tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]
_ARCHIVE = "VOCtrainval_11-May-2012.tar"
_FOLDER = "VOCdevkit/VOC2012"


def train(data_dir: str | Path | None = None) -> Callable[[], Iterator[Sample]]:
    """Return a reader of all images (`trainval.txt`)."""
    return _reader("trainval", data_dir)


def test(data_dir: str | Path | None = None) -> Callable[[], Iterator[Sample]]:
    """Return a reader of the images of `train.txt`, as Paddle's does."""
    return _reader("train", data_dir)


def val(data_dir: str | Path | None = None) -> Callable[[], Iterator[Sample]]:
    """Return a reader of the images of `val.txt`."""
    return _reader("val", data_dir)


def _reader(part: str, data_dir: str | Path | None) -> Callable[[], Iterator[Sample]]:
    path = find_file("voc2012", _ARCHIVE, data_dir=data_dir)

    def reader() -> Iterator[Sample]:
        names = file_in_tar(path, f"{_FOLDER}/ImageSets/Segmentation/{part}.txt")
        with tarfile.open(path) as tar:
            for name in names.decode().split():
                yield (
                    _pixels(tar, f"{_FOLDER}/JPEGImages/{name}.jpg"),
                    _pixels(tar, f"{_FOLDER}/SegmentationClass/{name}.png"),
                )

    return reader


def _pixels(tar: tarfile.TarFile, name: str) -> np.ndarray[Any, Any]:
    stream = tar.extractfile(name)
    if stream is None:
        raise ValueError(f"{tar.name}: {name} is not a file.")
    with pillow().open(io.BytesIO(stream.read())) as image:
        return np.array(image)
