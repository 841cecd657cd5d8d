"""Layers as classes, applied to variables of a program."""

from fleetx.static.clip import ClipGradByGlobalNorm, ClipGradByNorm, ClipGradByValue
from fleetx.static.layers import BeamSearchDecoder, dynamic_decode
from fleetx.static.nn import *  # noqa: F403
from paddle.nn import clip, functional, initializer, utils

# Paddle spells it Silu.
del SiLU  # noqa: F821
