"""Optimizers that are techniques of Fleet, for scripts that make one by hand."""

from paddle.distributed.fleet.meta_optimizers import amp_optimizer, recompute_optimizer
from paddle.distributed.fleet.meta_optimizers.amp_optimizer import AMPOptimizer
from paddle.distributed.fleet.meta_optimizers.recompute_optimizer import RecomputeOptimizer
