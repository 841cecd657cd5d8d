"""Transforms of images."""

from fleetx.data.transforms import *  # noqa: F403
from paddle.vision.transforms import functional, transforms
from paddle.vision.transforms.functional import *  # noqa: F403

# Paddle has this one among the functions only.
del adjust_saturation  # noqa: F821
