"""The batches of the training proof; needs nothing but NumPy."""

import numpy as np

STEPS = 10


def batch(step):
    """Return the feed of one step."""
    random = np.random.RandomState(100 + step)
    return {
        "image": random.randn(8, 1, 8, 8).astype("float32"),
        "label": random.randint(0, 10, (8, 1)).astype("int64"),
        "word": random.randint(0, 20, (8, 1)).astype("int64"),
    }
