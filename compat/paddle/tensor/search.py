"""Functions of tensors: see `fleetx.static.tensor.search`."""

from fleetx.static.tensor.search import *  # noqa: F403
