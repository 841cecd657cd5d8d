"""The fixed inputs of the models; needs nothing but NumPy."""

import numpy as np

NAMES = ("mlp", "resnet18", "embedding")
BATCH = 4


def inputs(name):
    """Return the fixed inputs of a model."""
    random = np.random.RandomState(7)
    if name == "mlp":
        return {"x": random.randn(BATCH, 16).astype("float32")}
    if name == "resnet18":
        return {"image": random.randn(BATCH, 3, 64, 64).astype("float32")}
    return {
        "dense": random.randn(BATCH, 6).astype("float32"),
        "user": random.randint(0, 50, (BATCH, 1)).astype("int64"),
        "item": random.randint(0, 70, (BATCH, 1)).astype("int64"),
    }
