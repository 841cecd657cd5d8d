"""ImageNet photographs to training samples by this project: one a step."""

import sys

from loop import serve
from torch import set_num_threads

from fleetx.data.imagenet import ImageNet

set_num_threads(1)
data = ImageNet(sys.argv[1], "train")


def endless():
    """Yield the samples of one epoch after the other."""
    while True:
        yield from data


samples = endless()
serve(lambda i: next(samples), 300)
