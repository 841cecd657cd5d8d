"""Optimizers."""

from fleetx.static.optimizer import (
    SGD,
    Adadelta,
    AdadeltaOptimizer,
    Adagrad,
    AdagradOptimizer,
    Adam,
    Adamax,
    AdamaxOptimizer,
    AdamOptimizer,
    DecayedAdagrad,
    DecayedAdagradOptimizer,
    Dpsgd,
    DpsgdOptimizer,
    ExponentialMovingAverage,
    Ftrl,
    FtrlOptimizer,
    GradientMergeOptimizer,
    Lamb,
    LambOptimizer,
    LarsMomentum,
    LarsMomentumOptimizer,
    LookaheadOptimizer,
    ModelAverage,
    Momentum,
    MomentumOptimizer,
    Optimizer,
    RecomputeOptimizer,
    RMSProp,
    RMSPropOptimizer,
    SGDOptimizer,
)
from paddle._coverage import exported, missing

__all__ = exported(globals())
__getattr__ = missing(__name__)
