"""Functions of tensors: see `fleetx.static.tensor.logic`."""

from fleetx.static.tensor.logic import *  # noqa: F403
