"""Training in half precision."""

from fleetx.static.mixed_precision import AutoMixedPrecisionLists, CustomOpLists, decorate
from paddle._coverage import missing

__all__ = ["AutoMixedPrecisionLists", "CustomOpLists", "decorate"]

__getattr__ = missing(__name__)
