"""LookaheadOptimizer: slow weights that follow the fast ones every k steps."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from fleetx.static import layers
from fleetx.static.errors import ArgumentError
from fleetx.static.graph.default_programs import default_main_program, default_startup_program
from fleetx.static.graph.variable import Variable
from fleetx.static.optimizer.wrapped_optimizer import Pairs, WrappedOptimizer


class LookaheadOptimizer(WrappedOptimizer):
    """Every `k` steps: slow += alpha * (fast - slow); fast = slow.

    The slow weights are persistable variables named `<parameter>@SLOW`.
    """

    type = "lookahead"

    def __init__(self, inner_optimizer: Any, alpha: float = 0.5, k: int = 5) -> None:
        if inner_optimizer is None:
            raise ArgumentError("inner_optimizer of LookaheadOptimizer is not set.")
        if not 0.0 <= alpha <= 1.0:
            raise ArgumentError(f"alpha of LookaheadOptimizer must be in [0, 1], not {alpha}.")
        if isinstance(k, bool) or not isinstance(k, int) or k <= 0:
            raise ArgumentError(f"k of LookaheadOptimizer must be a positive integer, not {k!r}.")
        super().__init__(inner_optimizer)
        self.alpha = alpha
        self.k = k

    @contextmanager
    def updating(self, pairs: Pairs) -> Iterator[Pairs]:
        """Write the slow weights after the updates."""
        yield pairs
        main = default_main_program().global_block()
        slow = self._create_slow_weights(main, default_startup_program().global_block())
        self._append_update(main, slow)

    @staticmethod
    def _create_slow_weights(main: Any, startup: Any) -> dict[str, Variable]:
        slow = {}
        for param in main.all_parameters():
            settings = {"shape": param.shape, "dtype": param.dtype, "persistable": True}
            settings["name"] = f"{param.name}@SLOW"
            slow[param.name] = main.create_var(**settings)
            startup.append_op(
                "assign", {"X": startup.var(param.name)}, {"Out": startup.create_var(**settings)}
            )
        return slow

    def _append_update(self, block: Any, slow: dict[str, Variable]) -> None:
        def setting(name: str, value: Any, dtype: str) -> Variable:
            return layers.create_global_var([1], value, dtype, persistable=True, name=name)

        k = setting("lookahead_k", self.k, "int32")
        alpha = setting("lookahead_alpha", float(self.alpha), "float32")
        step = setting("lookahead_step", 0, "int32")
        with block.program.optimized_guard([]):
            layers.increment(x=step, value=1.0, in_place=True)
            zero = layers.fill_constant(shape=[1], dtype="int32", value=0)
            due = layers.equal(layers.elementwise_mod(step, k), zero)
            with layers.Switch() as switch, switch.case(due):
                for name, slow_var in slow.items():
                    fast_var = block.var(name)
                    ahead = layers.elementwise_mul(fast_var, alpha)
                    behind = layers.elementwise_mul(slow_var, 1.0 - alpha)
                    value = layers.elementwise_add(ahead, behind)
                    layers.assign(input=value, output=slow_var)
                    layers.assign(input=value, output=fast_var)
