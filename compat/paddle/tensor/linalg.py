"""Functions of tensors: see `fleetx.static.tensor.linalg`."""

from fleetx.static.tensor import transpose
from fleetx.static.tensor.linalg import *  # noqa: F403
from fleetx.static.tensor.linalg import __all__ as _names

__all__ = [*_names, "transpose"]
