"""The network and the data that both scripts of this folder train with, in the names of Fluid."""

import numpy as np

import paddle.fluid as fluid


def make_batch(rng: np.random.Generator, size: int = 128) -> dict[str, np.ndarray]:
    """Return a batch that can be learnt: the label says whether the features sum to much."""
    x = rng.random((size, 32), dtype=np.float32)
    return {"x": x, "y": (x.sum(1, keepdims=True) > 16).astype("int64")}


def mlp(x: fluid.Variable, y: fluid.Variable, width: int = 128, classes: int = 2) -> fluid.Variable:
    """Add two hidden layers and a classifier to the current program; return the mean loss."""
    hidden = fluid.layers.fc(input=x, size=width, act="tanh")
    hidden = fluid.layers.fc(input=hidden, size=width, act="tanh")
    prediction = fluid.layers.fc(input=[hidden], size=classes, act="softmax")
    return fluid.layers.mean(x=fluid.layers.cross_entropy(input=prediction, label=y))
