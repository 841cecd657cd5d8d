"""The batches of the documents' first program, made once."""

import numpy as np

rng = np.random.RandomState(0)
BATCHES = [
    {
        "x": rng.random_sample((128, 32)).astype("float32"),
        "y": rng.randint(2, size=(128, 1)).astype("int64"),
    }
    for _ in range(64)
]
