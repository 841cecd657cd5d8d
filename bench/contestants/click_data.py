"""Batches of a click network: 26 slots of one id each, 13 numbers, a label. Made once."""

import numpy as np

SLOTS, ROWS, DIM, BATCH, NUMBERS = 26, 1000001, 9, 512, 13
LAYERS = (512, 256, 128, 32)
rng = np.random.RandomState(0)


def batch():
    """Return one batch."""
    feed = {f"C{i}": rng.randint(0, ROWS, (BATCH, 1)).astype("int64") for i in range(SLOTS)}
    feed["numbers"] = rng.random_sample((BATCH, NUMBERS)).astype("float32")
    feed["label"] = rng.randint(0, 2, (BATCH, 1)).astype("int64")
    return feed


BATCHES = [batch() for _ in range(16)]
