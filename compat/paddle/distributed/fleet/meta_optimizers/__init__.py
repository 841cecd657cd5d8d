"""Optimizers that are techniques of Fleet, for scripts that create them directly."""

from paddle.distributed.fleet.meta_optimizers import (
    amp_optimizer,
    common,
    recompute_optimizer,
    replacing_optimizers,
)
from paddle.distributed.fleet.meta_optimizers.amp_optimizer import AMPOptimizer
from paddle.distributed.fleet.meta_optimizers.recompute_optimizer import RecomputeOptimizer
from paddle.distributed.fleet.meta_optimizers.replacing_optimizers import *  # noqa: F403

__all__ = ["AMPOptimizer", "RecomputeOptimizer", "amp_optimizer", "recompute_optimizer"]
__all__ += replacing_optimizers.__all__
