"""The network and the data that the scripts of this folder train with, in the names of Fluid."""

import numpy as np

import paddle.fluid as fluid


def gen_data(rng: np.random.Generator, size: int = 128) -> dict[str, np.ndarray]:
    """Return a batch that can be learnt: the label says whether the features sum to much."""
    x = rng.random((size, 32), dtype=np.float32)
    return {"x": x, "y": (x.sum(1, keepdims=True) > 16).astype("int64")}


def mlp(
    input_x: fluid.Variable, input_y: fluid.Variable, hid_dim: int = 128, label_dim: int = 2
) -> fluid.Variable:
    """Add two hidden layers and a classifier to the current program; return the mean loss."""
    fc_1 = fluid.layers.fc(input=input_x, size=hid_dim, act="tanh")
    fc_2 = fluid.layers.fc(input=fc_1, size=hid_dim, act="tanh")
    prediction = fluid.layers.fc(input=[fc_2], size=label_dim, act="softmax")
    cost = fluid.layers.cross_entropy(input=prediction, label=input_y)
    return fluid.layers.mean(x=cost)
