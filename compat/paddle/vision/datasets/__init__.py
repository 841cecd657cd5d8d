"""Data sets of images, from local files."""

from fleetx.data.vision_datasets import (
    MNIST,
    Cifar10,
    Cifar100,
    DatasetFolder,
    FashionMNIST,
    Flowers,
    ImageFolder,
)
from paddle._coverage import missing

__all__ = [
    "Cifar10",
    "Cifar100",
    "DatasetFolder",
    "FashionMNIST",
    "Flowers",
    "ImageFolder",
    "MNIST",
]

__getattr__ = missing(__name__)
