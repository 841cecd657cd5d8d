"""Recomputation around one optimizer, with the settings of a strategy."""

from typing import Any

from fleetx.static import optimizer
from fleetx.step.settings import read
from fleetx.techniques.recompute import Config
from paddle.distributed.fleet.meta_optimizers._wrapping import WrappingOptimizer

__all__ = ["RecomputeOptimizer"]


class RecomputeOptimizer(WrappingOptimizer):
    """Fleet's recompute, which `fleet.distributed_optimizer` applies by itself."""

    _how_to_begin = "set user_defined_strategy"

    def _wrap(self) -> Any:
        config = read(Config, self.user_defined_strategy.recompute_configs)
        wrapped = optimizer.RecomputeOptimizer(self.inner_opt)
        wrapped.set_checkpoints(list(config.checkpoints))
        wrapped.enable_offload = config.enable_offload
        return wrapped
