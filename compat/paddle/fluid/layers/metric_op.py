"""Measures inside a program."""

from fleetx.static.layers import accuracy, auc

__all__ = ["accuracy", "auc"]
