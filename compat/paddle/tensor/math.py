"""Functions of tensors: see `fleetx.static.tensor.math`."""

from fleetx.static.tensor import addmm, broadcast_shape, inverse, kron, mm, trace
from fleetx.static.tensor.math import *  # noqa: F403
from fleetx.static.tensor.math import __all__ as _names

__all__ = [*_names, "addmm", "broadcast_shape", "inverse", "kron", "mm", "trace"]
