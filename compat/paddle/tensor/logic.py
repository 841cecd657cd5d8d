"""Functions of tensors: see `fleetx.static.tensor.logic`."""

from fleetx.static.tensor import is_tensor
from fleetx.static.tensor.logic import *  # noqa: F403
