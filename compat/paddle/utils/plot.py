"""Curves of training in a notebook or a file."""

from fleetx.static.inspection.curves import Curve as PlotData
from fleetx.static.inspection.curves import Ploter

__all__ = ["PlotData", "Ploter"]
