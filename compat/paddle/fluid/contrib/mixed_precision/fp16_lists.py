"""Which ops run in half precision."""

from fleetx.static.mixed_precision import AutoMixedPrecisionLists

__all__ = ["AutoMixedPrecisionLists", "CustomOpLists"]

CustomOpLists = AutoMixedPrecisionLists
