"""Recomputation around one optimizer, told its settings by a strategy."""

from typing import Any

from fleetx.static import optimizer
from fleetx.step.settings import read
from fleetx.techniques.recompute import Config, configured
from paddle._coverage import missing

__all__ = ["RecomputeOptimizer"]


class RecomputeOptimizer(WrappingOptimizer):
    """Fleet's recompute, which `fleet.distributed_optimizer` applies by itself."""

    _how_to_begin = "set user_defined_strategy"

    def _set_basic_info(
        self,
        loss: Any,
        role_maker: Any,
        user_defined_optimizer: Any,
        user_defined_strategy: Any,
    ) -> None:
        """Take the settings."""
        self.user_defined_strategy = user_defined_strategy

    def __getattr__(self, name: str) -> Any:
        if name in ("wrapped_opt", "inner_opt", "user_defined_strategy"):
            raise AttributeError(name)  # not yet set: while being copied
        if self.wrapped_opt is None:
            if self.user_defined_strategy is None:
                raise RuntimeError("set user_defined_strategy before using a RecomputeOptimizer.")
            config = read(Config, self.user_defined_strategy.recompute_configs)
            self.wrapped_opt = configured(optimizer.RecomputeOptimizer(self.inner_opt), config)
        return getattr(self.wrapped_opt, name)


__getattr__ = missing(__name__)
