"""Models, samples and a server with faults that the tests of the evaluation share."""

from pathlib import Path

import numpy as np
import pytest
from evaluated_servers import save_network, started

HERE = Path(__file__).resolve().parent


@pytest.fixture(scope="session")
def models(tmp_path_factory):
    """The model and an older version of it."""
    folder = tmp_path_factory.mktemp("models")
    return save_network(folder / "now", 1), save_network(folder / "old", 2)


@pytest.fixture(scope="session")
def pictures(tmp_path_factory):
    """A file with 40 samples and their ids, as ImageNet's mean and deviation leave them."""
    random = np.random.default_rng(3)
    pixels = random.integers(0, 256, (40, 3, 16, 16)) / 255
    mean, std = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])
    values = (pixels - mean.reshape(3, 1, 1)) / std.reshape(3, 1, 1)
    path = tmp_path_factory.mktemp("samples") / "pictures.npz"
    ids = np.array([f"picture-{i:03d}.png" for i in range(40)])
    np.savez(path, picture=values.astype("float32"), sample_ids=ids)
    return path


@pytest.fixture(scope="session")
def faulty(models):
    """The address of a server around the model; the path of a request names its fault."""
    with started(HERE / "faulty_server.py", *models) as url:
        yield url
