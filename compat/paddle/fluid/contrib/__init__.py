"""What Paddle 1.x kept apart as contributed."""

from paddle._coverage import missing
from paddle.fluid.contrib import layers, mixed_precision
from paddle.fluid.contrib.layers import *  # noqa: F403

__getattr__ = missing(__name__)
