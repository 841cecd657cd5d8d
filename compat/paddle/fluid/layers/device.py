"""Devices as values of a program."""

from fleetx.static.layers.places import get_places

__all__ = ["get_places"]
