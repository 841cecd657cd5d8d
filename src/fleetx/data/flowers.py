# ruff: noqa: PT028 - test() reads the test set; it is not a test.
"""Oxford flowers (102 kinds) as (pixels of a 224x224 crop in float32, label from 0).

The label file is in MATLAB's format and needs SciPy; decoding images needs Pillow.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from fleetx.data.bgr_image import load_image_bytes, simple_transform
from fleetx.data.local_files import endless, files_in_tar, find_file

Raw = tuple[bytes, int]
Mapper = Callable[[Raw], Any]
Reader = Callable[[], Iterator[Any]]
_MEAN = [103.94, 116.78, 123.68]
# The larger part, which its authors call the test set, is used for training.
_PARTS = {"train": "tstid", "test": "trnid", "valid": "valid"}


def default_mapper(is_train: bool, sample: Raw) -> tuple[np.ndarray[Any, Any], int]:
    """Decode and crop an image: at random for training, at the centre for testing."""
    data, label = sample
    image = simple_transform(load_image_bytes(data), 256, 224, is_train, mean=_MEAN)
    return image.reshape(-1).astype("float32"), label


train_mapper = partial(default_mapper, True)
test_mapper = partial(default_mapper, False)


def train(
    mapper: Mapper = train_mapper,
    buffered_size: int = 1024,
    use_xmap: bool = True,
    cycle: bool = False,
    data_dir: str | Path | None = None,
) -> Reader:
    """Return a reader of the training images; `use_xmap` maps them in several threads."""
    return _reader("train", mapper, buffered_size if use_xmap else 0, cycle, data_dir)


def test(
    mapper: Mapper = test_mapper,
    buffered_size: int = 1024,
    use_xmap: bool = True,
    cycle: bool = False,
    data_dir: str | Path | None = None,
) -> Reader:
    """Return a reader of the test images."""
    return _reader("test", mapper, buffered_size if use_xmap else 0, cycle, data_dir)


def valid(
    mapper: Mapper = test_mapper,
    buffered_size: int = 1024,
    use_xmap: bool = True,
    data_dir: str | Path | None = None,
) -> Reader:
    """Return a reader of the validation images."""
    return _reader("valid", mapper, buffered_size if use_xmap else 0, False, data_dir)


def _reader(
    part: str, mapper: Mapper, ahead: int, cycle: bool, data_dir: str | Path | None
) -> Reader:
    archive = find_file("flowers", "102flowers.tgz", data_dir=data_dir)
    labels, chosen = labels_and_numbers(part, data_dir=data_dir)
    label_of = {f"jpg/image_{i:05d}.jpg": int(labels[i - 1]) - 1 for i in chosen}

    def images() -> Iterator[Raw]:
        for name, stream in files_in_tar(archive, label_of.__contains__):
            yield stream.read(), label_of[name]

    def one_pass() -> Iterator[Any]:
        return _mapped(mapper, images(), ahead)

    return endless(one_pass) if cycle else one_pass


def labels_and_numbers(
    part: str,
    label_file: str | Path | None = None,
    setid_file: str | Path | None = None,
    data_dir: str | Path | None = None,
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Return the labels of all images (from 1) and the numbers (from 1) of one part's images."""
    labels = label_file or find_file("flowers", "imagelabels.mat", data_dir=data_dir)
    chosen = setid_file or find_file("flowers", "setid.mat", data_dir=data_dir)
    return _matlab(Path(labels), "labels"), _matlab(Path(chosen), _PARTS[part])


def _mapped(mapper: Mapper, samples: Iterator[Raw], ahead: int) -> Iterator[Any]:
    """Map in order, in threads that run up to `ahead` samples ahead (0: without threads)."""
    if not ahead:
        yield from map(mapper, samples)
        return
    pool = ThreadPoolExecutor(min(4, os.cpu_count() or 1), thread_name_prefix="fleetx-flowers")
    waiting: deque[Future[Any]] = deque()
    try:
        for sample in samples:
            waiting.append(pool.submit(mapper, sample))
            if len(waiting) >= ahead:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _matlab(path: Path, name: str) -> np.ndarray[Any, Any]:
    try:
        from scipy.io import loadmat  # type: ignore[import-untyped] # SciPy has no types
    except ImportError as error:
        raise ImportError(f"{path} is read with SciPy: pip install scipy.") from error
    content = loadmat(path)
    if name not in content:
        raise ValueError(f"{path} holds no variable {name!r}; is it the file of the flowers set?")
    return content[name].ravel()
