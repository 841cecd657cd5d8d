"""Functions on variables of a program."""

from fleetx.static.layers import brelu, diag_embed
from fleetx.static.nn.functional import *  # noqa: F403

# Paddle offers it as a layer only.
del group_norm  # noqa: F821
