"""Layers as classes, applied to variables of a program."""

from fleetx.static.clip import ClipGradByGlobalNorm, ClipGradByNorm, ClipGradByValue
from fleetx.static.nn import *  # noqa: F403
from paddle._coverage import exported, missing
from paddle.nn import clip, functional, initializer

# Paddle spells it Silu.
del SiLU  # noqa: F821

__all__ = exported(globals())
__getattr__ = missing(__name__)
