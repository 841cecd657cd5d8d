"""Functions of tensors: see `fleetx.static.tensor.logic`."""

from fleetx.static.tensor.logic import *  # noqa: F403
from fleetx.static.tensor.logic import __all__ as _names
from paddle._coverage import missing

__all__ = [*_names]

__getattr__ = missing(__name__)
