"""Image data sets by index, from small files of the real formats."""

import gzip
import io
import pickle
import struct
import tarfile

import numpy as np
import pytest

from fleetx.data import transforms
from fleetx.data.vision_datasets import MNIST, Cifar10, DatasetFolder, ImageFolder

Image = pytest.importorskip("PIL.Image")


@pytest.fixture
def mnist_files(tmp_path):
    images = np.arange(3 * 28 * 28, dtype=np.uint8).reshape(3, 28, 28)
    paths = []
    for name, array in (("images", images), ("labels", np.array([3, 1, 2], np.uint8))):
        path = tmp_path / f"{name}.gz"
        head = bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape)
        path.write_bytes(gzip.compress(head + array.tobytes()))
        paths.append(str(path))
    return images, paths


def test_mnist(mnist_files):
    images, (image_path, label_path) = mnist_files
    data = MNIST(image_path, label_path)
    assert len(data) == 3
    picture, label = data[1]
    np.testing.assert_array_equal(np.asarray(picture), images[1])
    assert label.dtype == np.int64
    assert label.tolist() == [1]
    arrays = MNIST(image_path, label_path, backend="cv2", transform=transforms.Transpose())
    assert arrays[0][0].shape == (1, 28, 28)
    assert arrays[0][0].dtype == np.float32
    with pytest.raises(ValueError, match="must be one of train, test"):
        MNIST(image_path, label_path, mode="dev")


def test_cifar10(tmp_path):
    pixels = np.arange(2 * 3072, dtype=np.uint8).reshape(2, 3072)
    content = pickle.dumps({b"data": pixels, b"labels": [7, 8]}, protocol=2)
    path = tmp_path / "cifar.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        info = tarfile.TarInfo("cifar-10-batches-py/data_batch_1")
        info.size = len(content)
        tar.addfile(info, io.BytesIO(content))
    data = Cifar10(str(path), backend="cv2")
    image, label = data[1]
    np.testing.assert_array_equal(image[:, :, 2].reshape(-1), pixels[1, 2048:])
    assert label.tolist() == [8]
    with pytest.raises(ValueError, match=r"holds no file named \*test_batch\*"):
        Cifar10(str(path), mode="test")


def test_folders(tmp_path):
    for name in ("cat", "dog"):
        (tmp_path / name).mkdir()
        Image.fromarray(np.zeros((4, 5, 3), np.uint8)).save(tmp_path / name / "a.png")
    (tmp_path / "cat" / "notes.txt").write_text("no image")
    data = DatasetFolder(str(tmp_path), transform=transforms.ToTensor())
    assert data.classes == ["cat", "dog"]
    assert [target for _, target in data.samples] == [0, 1]
    image, target = data[1]
    assert image.shape == (3, 4, 5)
    assert target == 1
    assert len(ImageFolder(str(tmp_path))) == 2
    with pytest.raises(RuntimeError, match="holds no folders with images"):
        DatasetFolder(str(tmp_path), extensions=(".gif",))
