"""Optimizers with the arguments of Paddle 2.x."""

from fleetx.static.optimizer.optimizers_of_2x import *  # noqa: F403
from paddle.optimizer import lr
