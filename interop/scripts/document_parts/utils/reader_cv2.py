"""Images for the documents' evaluation program: the same ones on every engine."""

import numpy as np


def train(settings, data_dir, pass_id_as_seed):
    """Return a reader of images and labels."""
    shape = [int(size) for size in settings.image_shape.split(",")]

    def read():
        random = np.random.RandomState(pass_id_as_seed)
        for _ in range(10):
            yield random.standard_normal(shape).astype("float32"), random.randint(10)

    return read
