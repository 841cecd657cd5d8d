# ruff: noqa: PT028 - test() reads the test set; it is not a test.
"""CIFAR-10 and CIFAR-100: small photographs as (3072 pixels from 0 to 1 in float32, label).

The archives contain pickles; they are read by an unpickler that accepts only arrays and plain
containers.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from fleetx.checkpoint.pickle_reader import load_object
from fleetx.data.local_files import endless, files_in_tar, find_file

Sample = tuple[np.ndarray[Any, Any], int]
Reader = Callable[[], Iterator[Sample]]


def train10(cycle: bool = False, data_dir: str | Path | None = None) -> Reader:
    """Return a reader of CIFAR-10's training images; with `cycle` it never ends."""
    return _reader("cifar-10-python.tar.gz", "data_batch", cycle, data_dir)


def test10(cycle: bool = False, data_dir: str | Path | None = None) -> Reader:
    """Return a reader of CIFAR-10's test images; with `cycle` it never ends."""
    return _reader("cifar-10-python.tar.gz", "test_batch", cycle, data_dir)


def train100(data_dir: str | Path | None = None) -> Reader:
    """Return a reader of CIFAR-100's training images, with the fine labels."""
    return _reader("cifar-100-python.tar.gz", "train", False, data_dir)


def test100(data_dir: str | Path | None = None) -> Reader:
    """Return a reader of CIFAR-100's test images, with the fine labels."""
    return _reader("cifar-100-python.tar.gz", "test", False, data_dir)


def _reader(archive: str, part: str, cycle: bool, data_dir: str | Path | None) -> Reader:
    path = find_file("cifar", archive, data_dir=data_dir)

    def one_pass() -> Iterator[Sample]:
        for image, label in raw_samples(path, part):
            yield (image / 255.0).astype("float32"), label

    return endless(one_pass) if cycle else one_pass


def raw_samples(path: Path, part: str) -> Iterator[Sample]:
    """Yield (3072 bytes of an image, label) of one part of an archive."""
    found = False
    for name, stream in files_in_tar(path, lambda name: part in name):
        found = True
        yield from _samples(load_object(io.BytesIO(stream.read()), source=f"{path}:{name}"))
    if not found:
        raise ValueError(f"{path} holds no file named *{part}*; is it an archive of CIFAR?")


def _samples(batch: dict[str | bytes, Any]) -> Iterator[Sample]:
    fields = {key.decode() if isinstance(key, bytes) else key: v for key, v in batch.items()}
    labels = fields["labels"] if "labels" in fields else fields["fine_labels"]
    for image, label in zip(fields["data"], labels, strict=True):
        yield image, int(label)
