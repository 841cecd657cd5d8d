"""Functions of tensors: see `fleetx.static.tensor.logic`."""

from fleetx.static.tensor import is_tensor
from fleetx.static.tensor.logic import *  # noqa: F403
from fleetx.static.tensor.logic import __all__ as _names

__all__ = [*_names, "is_tensor"]
