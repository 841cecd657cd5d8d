"""Mixed precision around one optimizer, told its settings by a strategy."""

from typing import Any

from fleetx.step.settings import read
from fleetx.techniques.amp import Config, decorated

__all__ = ["AMPOptimizer"]


class AMPOptimizer:
    """Fleet's amp, which `fleet.distributed_optimizer` applies by itself."""

    def __init__(self, optimizer: Any) -> None:
        self.inner_opt = optimizer
        self.wrapped_opt: Any = None

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
        self.wrapped_opt = decorated(self.inner_opt, config, check_each=several)

    def __getattr__(self, name: str) -> Any:
        if name in ("wrapped_opt", "inner_opt"):  # not yet set: while being copied
            raise AttributeError(name)
        if self.wrapped_opt is None:
            raise RuntimeError("call _set_basic_info before using an AMPOptimizer.")
        return getattr(self.wrapped_opt, name)
