"""Functions of tensors: see `fleetx.static.tensor.manipulation`."""

from fleetx.static.tensor.manipulation import *  # noqa: F403
