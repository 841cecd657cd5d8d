"""RecomputeOptimizer: the name, for scripts that use it; there is no recomputation here yet."""

from __future__ import annotations

from typing import Any


class RecomputeOptimizer:
    """Refuses to be made: training without recomputation would not save the memory asked for."""

    def __init__(self, optimizer: Any) -> None:
        raise NotImplementedError(
            "RecomputeOptimizer is not available: use the inner "
            f"{type(optimizer).__name__} directly, which keeps all activations in memory."
        )
