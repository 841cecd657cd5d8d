"""Functions of tensors: see `fleetx.static.tensor.creation`."""

from fleetx.static.tensor.creation import *  # noqa: F403
from fleetx.static.tensor.creation import __all__ as _names
from paddle._coverage import missing

__all__ = [*_names]

__getattr__ = missing(__name__)
