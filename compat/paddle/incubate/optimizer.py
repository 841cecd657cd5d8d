"""Optimizers that Paddle 2.x has on trial."""

from fleetx.static.optimizer import (
    GradientMergeOptimizer,
    LarsMomentumOptimizer,
    RecomputeOptimizer,
)
from paddle._coverage import missing

__all__ = ["GradientMergeOptimizer", "LarsMomentumOptimizer", "RecomputeOptimizer"]

__getattr__ = missing(__name__)
