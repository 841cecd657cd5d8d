"""Training in half precision."""

from fleetx.static.mixed_precision import (
    AutoMixedPrecisionLists,
    OptimizerWithMixedPrecision,
    decorate,
)

__all__ = ["AutoMixedPrecisionLists", "OptimizerWithMixedPrecision", "decorate"]
