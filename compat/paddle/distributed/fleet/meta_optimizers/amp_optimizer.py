"""Mixed precision around one optimizer, told its settings by a strategy."""

from typing import Any

from fleetx.static.mixed_precision import OptimizerWithMixedPrecision
from fleetx.step.settings import read
from fleetx.techniques.amp import Config, stage_settings
from paddle._coverage import missing

__all__ = ["AMPOptimizer"]


class AMPOptimizer(WrappingOptimizer):
    """Fleet's amp, which `fleet.distributed_optimizer` applies by itself."""

    _how_to_begin = "call _set_basic_info"

    def _set_basic_info(
        self,
        loss: Any,
        role_maker: Any,
        user_defined_optimizer: Any,
        user_defined_strategy: Any,
    ) -> None:
        """Take the settings."""
        config = read(Config, user_defined_strategy.amp_configs).rules()
        several = role_maker.worker_num() > 1
        self.wrapped_opt = OptimizerWithMixedPrecision(self.inner_opt, *stage_settings(config))
        self.wrapped_opt.skips_updates, self.wrapped_opt.checks_each = True, several

    def __getattr__(self, name: str) -> Any:
        if name in ("wrapped_opt", "inner_opt"):  # not yet set: while being copied
            raise AttributeError(name)
        if self.wrapped_opt is None:
            raise RuntimeError("call _set_basic_info before using an AMPOptimizer.")
        return getattr(self.wrapped_opt, name)


__getattr__ = missing(__name__)
