"""Which ops run in half precision."""

from fleetx.static.mixed_precision import AutoMixedPrecisionLists

CustomOpLists = AutoMixedPrecisionLists
