"""The training runs of the proof: which networks, how they are trained, and on what data.

A case says how to train: (optimizer, weight decay, clipping, schedule of the learning rate). The
words are those of the tables in run_fluid.py and run_static.py. Needs nothing but NumPy.
"""

import numpy as np

NONE = "-"
PLAIN = (NONE, NONE, NONE)
STEPS = {"resnet18": 5}  # of the others: 20
SCALES = {"resnet18": 0.02}  # of the learning rates
FEW = ["sgd", "momentum", "adam"]
SCHEDULES = {
    "fluid": [
        "piecewise",
        "polynomial",
        "polynomial cycle",
        "exponential",
        "exponential staircase",
        "natural exponential",
        "inverse time",
        "cosine",
        "noam",
        "warm-up",
        "warm-up cosine",
    ],
    "static": [
        "piecewise",
        "polynomial",
        "polynomial cycle",
        "exponential",
        "natural exponential",
        "inverse time",
        "cosine",
        "noam",
        "warm-up",
        "warm-up cosine",
        "step",
        "multi-step",
        "lambda",
        "one cycle",
        "cyclic",
        "linear",
        "multiplicative",
        "restarts",
    ],
}
OTHERS = {
    "fluid": [
        "adagrad",
        "rmsprop",
        "rmsprop centered",
        "adamax",
        "lamb",
        "lars",
        "decayed adagrad",
        "ftrl",
    ],
    "static": [
        "adagrad",
        "rmsprop",
        "rmsprop centered",
        "adamax",
        "lamb",
        "lars",
        "adadelta",
        "adamw",
        "adamw chosen",
    ],
}
DECAYED = [
    ("L2", NONE),
    ("L1", NONE),
    (NONE, "by value"),
    (NONE, "by norm"),
    (NONE, "by global norm"),
    ("L2", "by global norm"),
]


def cases(api, network):
    """Return how a network is trained in the proof."""
    if network == "resnet18":
        return [(name, *PLAIN) for name in FEW]
    if network == "mlp with attributes":
        return [(o, d, c, NONE) for o in FEW for d, c in [(NONE, NONE), *DECAYED]]
    if network == "ctr with attributes":
        return [(o, decay, NONE, NONE) for o in [*FEW, "nesterov"] for decay in (NONE, "L1", "L2")]
    if network == "ctr sparse":
        names = [*FEW, "adam lazy", "adagrad", "rmsprop"]
        found = [(name, *PLAIN) for name in names]
        found += [(o, d, c, NONE) for o in [*FEW, "adam lazy"] for d, c in DECAYED]
        if api == "static":
            # Paddle 2.6.2 reads and writes other memory in these, and in AdamW: every run differs.
            found = [case for case in found if case[2] not in ("by value", "by norm")]
        return found
    names = ["sgd", "momentum", "nesterov", "adam"]
    found = [(name, *PLAIN) for name in names + OTHERS[api]]
    found += [(o, d, c, NONE) for o in names for d, c in DECAYED]
    found += [(o, NONE, NONE, s) for o in FEW for s in SCHEDULES[api]]
    return found + [(o, "L2", "by global norm", "warm-up cosine") for o in names]


NETWORKS = [
    "mlp",
    "mlp with attributes",
    "conv",
    "ctr",
    "ctr sparse",
    "ctr with attributes",
    "resnet18",
]


def steps(network):
    """Return how many steps a run has."""
    return STEPS.get(network, 20)


def rate_scale(network):
    """Return what all learning rates of a network are multiplied by."""
    return SCALES.get(network, 1.0)


def batches(network):
    """Return the batches of a run: arrays, or (values, lengths) of sequences."""
    random = np.random.RandomState(17)
    make = {"mlp": _rows, "conv": _images, "ctr": _clicks, "resnet18": _large_images}
    return [make[network.split()[0]](random) for _ in range(steps(network))]


def _rows(random):
    x = random.random_sample((128, 32)).astype("float32")
    return {"x": x, "y": (x[:, :1] + x[:, 1:2] > 1).astype("int64")}


def _images(random, shape=(8, 3, 10, 10), classes=5):
    label = random.randint(0, classes, (shape[0], 1)).astype("int64")
    image = random.standard_normal(shape) + 0.2 * label[:, :, None, None]
    return {"image": image.astype("float32"), "label": label}


def _large_images(random):
    # In double precision: batch normalisation over so few values magnifies the last bits, and a
    # ReLU whose input is zero but for rounding decides the rest of the run. In single precision
    # even Paddle is 8% away from itself after five steps if one parameter changes by a last bit.
    batch = _images(random, (8, 3, 32, 32), 10)
    return {**batch, "image": batch["image"].astype("float64")}


def _clicks(random):
    lengths = [random.randint(1, 6, 16).tolist() for _ in range(2)]
    first, second = (random.randint(0, 40, (sum(n), 1)).astype("int64") for n in lengths)
    starts = np.cumsum([0] + lengths[0][:-1])
    return {
        "dense": random.random_sample((16, 4)).astype("float32"),
        "first": (first, lengths[0]),
        "second": (second, lengths[1]),
        "click": (first[starts] % 2).astype("int64"),
    }
