"""Functions of tensors: see `fleetx.static.tensor.math`."""

from fleetx.static.tensor.math import *  # noqa: F403
