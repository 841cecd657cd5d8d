"""Data sets of images by index, for `DataLoader`: MNIST, CIFAR, flowers, VOC, image folders.

The files are local (see `local_files.py`); nothing is downloaded. A sample is (image, label). The
image is a Pillow image or an array, depending on the image backend; `transform` is applied to it.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fleetx.data import cifar, flowers, voc2012
from fleetx.data.dataset import Dataset
from fleetx.data.image import get_image_backend, image_load
from fleetx.data.local_files import files_in_tar, find_file
from fleetx.data.mnist import read_idx
from fleetx.exports import export_defined

Transform = Callable[[Any], Any]
_EXTENSIONS = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")


class _Images(Dataset):
    """Images in memory, each with a label."""

    def __init__(
        self, mode: str, modes: Sequence[str], transform: Any, backend: str | None
    ) -> None:
        if mode not in modes:
            raise ValueError(
                f"mode of {type(self).__name__} must be one of {', '.join(modes)}, not {mode!r}."
            )
        self.mode = mode
        self.transform: Transform | None = transform
        self.backend = get_image_backend() if backend is None else backend
        if self.backend not in ("pil", "cv2"):
            raise ValueError(f"backend must be 'pil' or 'cv2', not {backend!r}.")

    def _finish(self, image: np.ndarray[Any, Any], label: int) -> tuple[Any, Any]:
        """Return the sample, with the image in the type of the backend, transformed."""
        shown: Any = image
        if self.backend == "pil":
            from PIL import Image

            shown = Image.fromarray(image)
        if self.transform is not None:
            shown = self.transform(shown)
        if self.backend == "cv2":
            shown = np.asarray(shown, dtype=np.float32)
        return shown, np.array([label], dtype=np.int64)


class MNIST(_Images):
    """Handwritten digits, 28x28 in grayscale."""

    _folder = "mnist"

    def __init__(
        self,
        image_path: str | None = None,
        label_path: str | None = None,
        mode: str = "train",
        transform: Transform | None = None,
        download: bool = True,
        backend: str | None = None,
    ) -> None:
        super().__init__(mode, ("train", "test"), transform, backend)
        part = "train" if mode == "train" else "t10k"
        images = image_path or find_file(self._folder, f"{part}-images-idx3-ubyte.gz")
        labels = label_path or find_file(self._folder, f"{part}-labels-idx1-ubyte.gz")
        self.images = read_idx(Path(images), 3)
        self.labels = read_idx(Path(labels), 1)

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        return self._finish(self.images[index], int(self.labels[index]))

    def __len__(self) -> int:
        return len(self.labels)


class FashionMNIST(MNIST):
    """Clothes, 28x28 in grayscale, in files of MNIST's format."""

    _folder = "fashion-mnist"


class _InArchive(_Images):
    """Images in one archive, whose part for each mode `_parts` names."""

    _parts: dict[str, str]

    def __init__(
        self,
        data_file: str | None = None,
        mode: str = "train",
        transform: Transform | None = None,
        download: bool = True,
        backend: str | None = None,
    ) -> None:
        super().__init__(mode, tuple(self._parts), transform, backend)
        self._open(data_file, self._parts[mode])

    def _open(self, data_file: str | None, part: str) -> None:
        """Open a part of the archive, by default of the one among the local files."""
        raise NotImplementedError


class Cifar10(_InArchive):
    """Photographs of ten classes, 32x32 in colour."""

    _archive = "cifar-10-python.tar.gz"
    _parts = {"train": "data_batch", "test": "test_batch"}

    def _open(self, data_file: str | None, part: str) -> None:
        path = Path(data_file) if data_file else find_file("cifar", self._archive)
        self.data = list(cifar.raw_samples(path, part))

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        pixels, label = self.data[index]
        return self._finish(pixels.reshape(3, 32, 32).transpose(1, 2, 0), label)

    def __len__(self) -> int:
        return len(self.data)


class Cifar100(Cifar10):
    """Photographs of a hundred classes, 32x32 in colour."""

    _archive = "cifar-100-python.tar.gz"
    _parts = {"train": "train", "test": "test"}


class Flowers(_Images):
    """Flowers of 102 classes, in colour, of different sizes; labels start at 1."""

    def __init__(
        self,
        data_file: str | None = None,
        label_file: str | None = None,
        setid_file: str | None = None,
        mode: str = "train",
        transform: Transform | None = None,
        download: bool = True,
        backend: str | None = None,
    ) -> None:
        super().__init__(mode, ("train", "valid", "test"), transform, backend)
        path = data_file or find_file("flowers", "102flowers.tgz")
        self.labels, self.indexes = flowers.labels_and_numbers(mode, label_file, setid_file)
        wanted = {self._name(i) for i in self.indexes}
        archive = files_in_tar(path, wanted.__contains__)
        self._files = {name: stream.read() for name, stream in archive}

    @staticmethod
    def _name(number: int) -> str:
        return f"jpg/image_{number:05d}.jpg"

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        from PIL import Image

        number = int(self.indexes[index])
        with Image.open(io.BytesIO(self._files[self._name(number)])) as file:
            pixels = np.asarray(file.convert("RGB"))
        return self._finish(pixels, int(self.labels[number - 1]))

    def __len__(self) -> int:
        return len(self.indexes)


class VOC2012(_InArchive):
    """Photographs with the class of every pixel; a sample is (image, classes).

    The modes are named as in Paddle: 'train' reads the list trainval, 'test' the list train.
    """

    _parts = {"train": "trainval", "valid": "val", "test": "train"}

    def _open(self, data_file: str | None, part: str) -> None:
        self._archive = voc2012.Archive(part, data_file)

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        image, classes = self._archive.images(index)
        if self.backend == "cv2":
            image, classes = np.array(image), np.array(classes, dtype=np.float32)
        if self.transform is not None:
            image = self.transform(image)
        return (np.asarray(image, dtype=np.float32) if self.backend == "cv2" else image), classes

    def __len__(self) -> int:
        return len(self._archive.names)


def _is_image(extensions: Sequence[str] | None, is_valid_file: Any) -> Callable[[str], bool]:
    if is_valid_file is not None and extensions is not None:
        raise ValueError("give extensions or is_valid_file, not both.")
    endings = tuple(_EXTENSIONS if extensions is None else extensions)
    return is_valid_file or (lambda path: path.lower().endswith(endings))


def _files_below(folder: str, accept: Callable[[str], bool]) -> list[str]:
    return [
        os.path.join(where, name)
        for where, _, names in sorted(os.walk(folder, followlinks=True))
        for name in sorted(names)
        if accept(os.path.join(where, name))
    ]


class _Folder(Dataset):
    """Images in files below a folder."""

    samples: list[Any]

    def __init__(
        self,
        root: str,
        loader: Callable[[str], Any] | None = None,
        extensions: Sequence[str] | None = None,
        transform: Transform | None = None,
        is_valid_file: Callable[[str], bool] | None = None,
    ) -> None:
        self.root = root
        self.transform = transform
        self.loader = image_load if loader is None else loader
        self._find(_is_image(extensions, is_valid_file))

    def _find(self, accept: Callable[[str], bool]) -> None:
        """Set `samples` to the images found below the folder."""
        raise NotImplementedError

    def _load(self, path: str) -> Any:
        image = self.loader(path)
        return image if self.transform is None else self.transform(image)

    def __len__(self) -> int:
        return len(self.samples)


class DatasetFolder(_Folder):
    """A folder with one folder per class; a sample is (image, class index)."""

    def _find(self, accept: Callable[[str], bool]) -> None:
        self.classes = sorted(entry.name for entry in os.scandir(self.root) if entry.is_dir())
        self.class_to_idx = {name: i for i, name in enumerate(self.classes)}
        self.samples = [
            (path, number)
            for name, number in self.class_to_idx.items()
            for path in _files_below(os.path.join(self.root, name), accept)
        ]
        if not self.samples:
            raise RuntimeError(f"{self.root} holds no folders with images.")
        self.targets = [number for _, number in self.samples]

    def __getitem__(self, index: int) -> tuple[Any, int]:
        path, target = self.samples[index]
        return self._load(path), target


class ImageFolder(_Folder):
    """All images in and below a folder, without labels; a sample is a list with the image."""

    def _find(self, accept: Callable[[str], bool]) -> None:
        self.samples = _files_below(self.root, accept)
        if not self.samples:
            raise RuntimeError(f"{self.root} holds no images.")

    def __getitem__(self, index: int) -> list[Any]:
        return [self._load(self.samples[index])]


export_defined(globals())
