"""Transforms of images."""

from fleetx.data.transforms import *  # noqa: F403
from paddle._coverage import exported, missing
from paddle.vision.transforms import functional, transforms
from paddle.vision.transforms.functional import *  # noqa: F403

# Paddle has this one among the functions only.
del adjust_saturation  # noqa: F821

__all__ = exported(globals())
__getattr__ = missing(__name__)
