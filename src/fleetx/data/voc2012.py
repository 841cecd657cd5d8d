# ruff: noqa: PT028 - test() reads the test set; it is not a test.
"""PASCAL VOC 2012, segmentation: (photograph [H, W, 3], class of every pixel [H, W]) in uint8."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable, Iterator
from functools import partial
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


class Archive:
    """The images of one list (trainval, train or val) in an archive, read one by one."""

    def __init__(self, part: str, data_dir: str | Path | None = None) -> None:
        self._path = find_file("voc2012", _ARCHIVE, data_dir=data_dir)
        names = file_in_tar(self._path, f"{_FOLDER}/ImageSets/Segmentation/{part}.txt")
        self.names = names.decode().split()
        with tarfile.open(self._path) as tar:
            self._members = {member.name: member for member in tar}

    def images(self, index: int) -> tuple[Any, Any]:
        """Return a photograph and the classes of its pixels as Pillow images."""
        name = self.names[index]
        with tarfile.open(self._path) as tar:
            return (
                self._image(tar, f"{_FOLDER}/JPEGImages/{name}.jpg"),
                self._image(tar, f"{_FOLDER}/SegmentationClass/{name}.png"),
            )

    def _image(self, tar: tarfile.TarFile, name: str) -> Any:
        member = self._members.get(name)
        stream = None if member is None else tar.extractfile(member)
        if stream is None:
            raise ValueError(f"{self._path} holds no file {name}.")
        return pillow().open(io.BytesIO(stream.read()))


def _reader(part: str, data_dir: str | Path | None) -> Callable[[], Iterator[Sample]]:
    return partial(_samples, Archive(part, data_dir))


def _samples(archive: Archive) -> Iterator[Sample]:
    for index in range(len(archive.names)):
        photograph, classes = archive.images(index)
        yield np.array(photograph), np.array(classes)
