"""A small ImageNet folder."""

from pathlib import Path

import pytest
from generated_pictures import write_dataset


@pytest.fixture(scope="session")
def imagenet(tmp_path_factory) -> Path:
    """23 training and 5 validation pictures; tests only read them."""
    root = tmp_path_factory.mktemp("ImageNet")
    write_dataset(root, 23)
    return write_dataset(root, 5, phase="val")


@pytest.fixture
def own_imagenet(tmp_path) -> Path:
    """A data set that a test may spoil."""
    return write_dataset(tmp_path, 6)
