"""The base of these optimizers: wraps an optimizer according to a strategy on first use."""

from typing import Any


class WrappingOptimizer:
    """An optimizer whose attributes are those of the wrapped one."""

    _how_to_begin = ""

    def __init__(self, optimizer: Any) -> None:
        self.inner_opt = optimizer
        self.wrapped_opt: Any = None
        self.user_defined_strategy: Any = None
        self.role_maker: Any = None

    def _set_basic_info(
        self,
        loss: Any,
        role_maker: Any,
        user_defined_optimizer: Any,
        user_defined_strategy: Any,
    ) -> None:
        """Take the settings."""
        self.role_maker, self.user_defined_strategy = role_maker, user_defined_strategy

    def _wrap(self) -> Any:
        """Return the inner optimizer, wrapped according to the strategy."""
        raise NotImplementedError

    def __getattr__(self, name: str) -> Any:
        if "user_defined_strategy" not in vars(self):  # not yet set: while being copied
            raise AttributeError(name)
        if self.wrapped_opt is None:
            if self.user_defined_strategy is None:
                raise RuntimeError(f"{self._how_to_begin} before using a {type(self).__name__}.")
            self.wrapped_opt = self._wrap()
        return getattr(self.wrapped_opt, name)
