"""Functions of tensors: see `fleetx.static.tensor.creation`."""

from fleetx.static.tensor.creation import *  # noqa: F403
