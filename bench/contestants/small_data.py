"""The batches of the collective benchmark. Requires only NumPy: real Paddle runs without
PyTorch."""

import numpy as np

BERT_WORDS = 8000
# Shape of a worker's batch and number of classes.
SHAPES = {
    "mlp": ((128, 32), 2),
    "wide": ((32, 1024), 2),
    "resnet18": ((16, 3, 32, 32), 10),
    "bert": ((8, 64), 2),
}


def batches(net, rank):
    """Return a few batches (arrays) for a network; each worker has its own."""
    rng = np.random.default_rng(rank)
    shape, classes = SHAPES[net]
    found = []
    for _ in range(8):
        if net == "bert":
            x = rng.integers(0, BERT_WORDS, shape)
        else:
            x = rng.standard_normal(shape, dtype=np.float32)
        found.append((x, rng.integers(0, classes, (shape[0], 1))))
    return found
