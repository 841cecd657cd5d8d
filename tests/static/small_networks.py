"""Small networks that the tests share."""

from __future__ import annotations

import shutil
from typing import Any

import numpy as np
import pytest

from fleetx import static
from fleetx.static import layers

needs_compiler = pytest.mark.skipif(
    shutil.which("g++") is None, reason="torch's compiler needs g++: apt-get install g++"
)


def mlp(hidden: int = 16, classes: int = 3, width: int = 8) -> tuple[Any, Any, Any]:
    """Return (prediction, per-sample cost, mean cost) of a two-layer classifier on x, y."""
    x = layers.data("x", shape=[width], dtype="float32")
    y = layers.data("y", shape=[1], dtype="int64")
    h = layers.fc(x, hidden, act="tanh")
    prediction = layers.fc(h, classes, act="softmax")
    cost = layers.cross_entropy(prediction, y)
    return prediction, cost, layers.mean(cost)


def batch(size: int = 6, classes: int = 3, width: int = 8, seed: int = 0) -> dict[str, Any]:
    """Return a feed for `mlp`."""
    rng = np.random.default_rng(seed)
    return {
        "x": rng.random((size, width), dtype=np.float32),
        "y": rng.integers(0, classes, size=(size, 1)),
    }


def started(place: Any = None) -> static.Executor:
    """Return an executor that has run the default startup program."""
    exe = static.Executor(place or static.CPUPlace())
    exe.run(static.default_startup_program())
    return exe


def value(name: str) -> np.ndarray[Any, Any]:
    """Return a persistable variable's value."""
    found = static.global_scope().find_var(name)
    assert found is not None
    return np.array(found.get_tensor())
