"""Which ops run in half precision."""

from fleetx.static.mixed_precision import AutoMixedPrecisionLists
from paddle._coverage import missing

__all__ = ["AutoMixedPrecisionLists"]

__getattr__ = missing(__name__)
