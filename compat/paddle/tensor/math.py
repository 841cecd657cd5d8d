"""Functions of tensors: see `fleetx.static.tensor.math`."""

from fleetx.static.layers import mul
from fleetx.static.tensor import addmm, broadcast_shape, inverse, kron, mm, trace
from fleetx.static.tensor.math import *  # noqa: F403
