"""Programs of a few layers: running them, and what their blocks hold."""

from __future__ import annotations

from typing import Any

import numpy as np

from fleetx import static
from fleetx.static import layers

X = np.array([[0.0, 0.1, 0.2], [1.0, 1.0, 1.0], [0.3, 0.3, 0.3]], "float32")


def run(fetch: list[Any], feed: dict[str, Any] | None = None, startup: bool = True) -> list[Any]:
    executor = static.Executor(static.CPUPlace())
    if startup:
        executor.run(static.default_startup_program())
    return executor.run(feed=feed or {}, fetch_list=fetch)


def number(value: float, dtype: str = "int64") -> Any:
    return layers.fill_constant([1], dtype, value)


def op_types(block: int = 0) -> list[str]:
    return [op.type for op in static.default_main_program().block(block).ops]
