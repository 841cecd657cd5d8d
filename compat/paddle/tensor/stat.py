"""Functions of tensors: see `fleetx.static.tensor.stat`."""

from fleetx.static.tensor import numel
from fleetx.static.tensor.stat import *  # noqa: F403
