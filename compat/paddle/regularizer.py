"""Weight decay."""

from fleetx.static.regularizer import L1Decay, L2Decay
from paddle._coverage import missing

__all__ = ["L1Decay", "L2Decay"]

__getattr__ = missing(__name__)
