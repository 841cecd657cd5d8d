"""Optimizers that append update ops to a program; `v2` holds them with Paddle 2.x's arguments."""

from fleetx.static.optimizer.adam import (
    Adam,
    Adamax,
    AdamaxOptimizer,
    AdamOptimizer,
    AdamW,
    Lamb,
    LambOptimizer,
)
from fleetx.static.optimizer.adaptive import (
    Adadelta,
    AdadeltaOptimizer,
    Adagrad,
    AdagradOptimizer,
    DecayedAdagrad,
    DecayedAdagradOptimizer,
    Ftrl,
    FtrlOptimizer,
    RMSProp,
    RMSPropOptimizer,
)
from fleetx.static.optimizer.averages import ExponentialMovingAverage, ModelAverage
from fleetx.static.optimizer.base import Optimizer
from fleetx.static.optimizer.decoupled import extend_with_decoupled_weight_decay
from fleetx.static.optimizer.dgc import DGCMomentum, DGCMomentumOptimizer
from fleetx.static.optimizer.gradient_merge import GradientMergeOptimizer
from fleetx.static.optimizer.lookahead import LookaheadOptimizer
from fleetx.static.optimizer.recompute import RecomputeOptimizer
from fleetx.static.optimizer.sgd import (
    SGD,
    Dpsgd,
    DpsgdOptimizer,
    LarsMomentum,
    LarsMomentumOptimizer,
    Momentum,
    MomentumOptimizer,
    SGDOptimizer,
)

__all__ = [
    "SGD",
    "Adadelta",
    "AdadeltaOptimizer",
    "Adagrad",
    "AdagradOptimizer",
    "Adam",
    "AdamOptimizer",
    "AdamW",
    "Adamax",
    "AdamaxOptimizer",
    "DGCMomentum",
    "DGCMomentumOptimizer",
    "DecayedAdagrad",
    "DecayedAdagradOptimizer",
    "Dpsgd",
    "DpsgdOptimizer",
    "ExponentialMovingAverage",
    "Ftrl",
    "FtrlOptimizer",
    "GradientMergeOptimizer",
    "Lamb",
    "LambOptimizer",
    "LarsMomentum",
    "LarsMomentumOptimizer",
    "LookaheadOptimizer",
    "ModelAverage",
    "Momentum",
    "MomentumOptimizer",
    "Optimizer",
    "RMSProp",
    "RMSPropOptimizer",
    "RecomputeOptimizer",
    "SGDOptimizer",
    "extend_with_decoupled_weight_decay",
]
