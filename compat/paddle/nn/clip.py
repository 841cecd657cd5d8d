"""Clipping of gradients."""

from fleetx.static.clip import ClipGradByGlobalNorm, ClipGradByNorm, ClipGradByValue
from paddle._coverage import missing

__all__ = ["ClipGradByGlobalNorm", "ClipGradByNorm", "ClipGradByValue"]

__getattr__ = missing(__name__)
