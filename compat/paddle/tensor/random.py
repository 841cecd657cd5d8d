"""Functions of tensors: see `fleetx.static.tensor.random`."""

from fleetx.static.tensor.random import *  # noqa: F403
