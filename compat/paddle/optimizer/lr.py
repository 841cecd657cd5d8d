"""Learning rates that change with the step or the epoch."""

from fleetx.static.lr import *  # noqa: F403
from fleetx.static.lr import __all__ as _names
from paddle._coverage import missing

__all__ = [*_names]

__getattr__ = missing(__name__)
