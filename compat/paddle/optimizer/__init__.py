"""Optimizers with the arguments of Paddle 2.x."""

from fleetx.static.optimizer.optimizers_of_2x import *  # noqa: F403
from fleetx.static.optimizer.optimizers_of_2x import __all__ as _names
from paddle._coverage import missing
from paddle.optimizer import lr

__all__ = [*_names]

__getattr__ = missing(__name__)
