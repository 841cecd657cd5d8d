"""Devices as values of a program."""

from fleetx.static.layers.device import get_places
from paddle._coverage import missing

__all__ = ["get_places"]

__getattr__ = missing(__name__)
