"""Measures inside a program."""

from fleetx.static.layers import accuracy, auc
from paddle._coverage import missing

__all__ = ["accuracy", "auc"]

__getattr__ = missing(__name__)
