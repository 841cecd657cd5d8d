"""Mixed precision around one optimizer, with the settings of a strategy."""

from typing import Any

from fleetx.static.mixed_precision import OptimizerWithMixedPrecision
from fleetx.step.settings import read
from fleetx.techniques.amp import Config, stage_settings
from paddle.distributed.fleet.meta_optimizers._wrapping import WrappingOptimizer

__all__ = ["AMPOptimizer"]


class AMPOptimizer(WrappingOptimizer):
    """Fleet's amp, which `fleet.distributed_optimizer` applies by itself."""

    _how_to_begin = "call _set_basic_info"

    def _wrap(self) -> Any:
        config = read(Config, self.user_defined_strategy.amp_configs).rules()
        made = OptimizerWithMixedPrecision(self.inner_opt, *stage_settings(config))
        made.skips_updates, made.checks_each = True, self.role_maker.worker_num() > 1
        return made
