"""Clipping of gradients."""

from fleetx.static.clip import ClipGradByGlobalNorm, ClipGradByNorm, ClipGradByValue
