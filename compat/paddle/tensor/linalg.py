"""Functions of tensors: see `fleetx.static.tensor.linalg`."""

from fleetx.static.tensor import transpose
from fleetx.static.tensor.linalg import *  # noqa: F403
