"""Optimizers that append update ops to a program.

`optimizers_of_2x` holds them with Paddle 2.x's arguments.
"""

from fleetx.exports import export_imported
from fleetx.static.optimizer.adam import *  # noqa: F403
from fleetx.static.optimizer.adaptive import *  # noqa: F403
from fleetx.static.optimizer.averages import ExponentialMovingAverage, ModelAverage
from fleetx.static.optimizer.base import Optimizer
from fleetx.static.optimizer.decoupled import extend_with_decoupled_weight_decay
from fleetx.static.optimizer.dgc_momentum import DGCMomentum, DGCMomentumOptimizer
from fleetx.static.optimizer.gradient_merge_optimizer import GradientMergeOptimizer
from fleetx.static.optimizer.lookahead import LookaheadOptimizer
from fleetx.static.optimizer.pipeline_optimizer import PipelineOptimizer
from fleetx.static.optimizer.recompute_optimizer import RecomputeOptimizer
from fleetx.static.optimizer.sgd import *  # noqa: F403

export_imported(globals())
