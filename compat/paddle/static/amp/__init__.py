"""Training in half precision."""

from fleetx.static.mixed_precision import AutoMixedPrecisionLists, CustomOpLists, decorate
