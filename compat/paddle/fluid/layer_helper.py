"""What layers are built with."""

from fleetx.static.building.layer_helper import LayerHelper
from paddle._coverage import missing

__all__ = ["LayerHelper"]

__getattr__ = missing(__name__)
