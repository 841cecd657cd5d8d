"""Functions of tensors: see `fleetx.static.tensor.attribute`."""

from fleetx.static.tensor.attribute import *  # noqa: F403
