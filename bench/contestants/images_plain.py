"""The random part of a photograph as the document's reader draws it, and its loop over the list."""

import math
import os
import sys

import numpy as np
from loop import serve

SIZE = 224
MEAN = np.array([0.485, 0.456, 0.406]).reshape((3, 1, 1))
STD = np.array([0.229, 0.224, 0.225]).reshape((3, 1, 1))


def random_part(width, height):
    """Return left, top, width and height of a part of random shape and size."""
    across = math.sqrt(np.random.uniform(3 / 4, 4 / 3))
    down = 1 / across
    most = min(1.0, height / width / down**2, width / height / across**2)
    side = math.sqrt(width * height * np.random.uniform(min(0.08, most), most))
    w, h = int(side * across), int(side * down)
    return np.random.randint(0, width - w + 1), np.random.randint(0, height - h + 1), w, h


def normalized(pixels):
    """Return bytes [height, width, 3] as float32 [3, height, width], mean 0 and deviation 1."""
    image = pixels.astype("float32").transpose((2, 0, 1)) / 255
    image -= MEAN
    image /= STD
    return image


def run(picture):
    """Convert one file after the other to a sample by `picture`."""
    np.random.seed(0)
    root = sys.argv[1]
    with open(os.path.join(root, "train.txt")) as lines:
        samples = [line.split() for line in lines]
    np.random.shuffle(samples)

    def step(i):
        path, label = samples[i % len(samples)]
        return picture(os.path.join(root, "train", path)), int(label)

    serve(step, 300)
