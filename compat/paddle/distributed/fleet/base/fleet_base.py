"""The class of the session."""

from fleetx.fleet import Fleet
from paddle._coverage import missing

__all__ = ["Fleet"]

__getattr__ = missing(__name__)
