"""Optimizers that Paddle 2.x has on trial."""

from fleetx.static.optimizer import (
    GradientMergeOptimizer,
    LarsMomentumOptimizer,
    RecomputeOptimizer,
)
from fleetx.static.optimizer import LookaheadOptimizer as LookAhead
