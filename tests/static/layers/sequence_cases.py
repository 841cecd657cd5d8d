"""Random rows of sequences, and the offsets that ops give their results."""

from __future__ import annotations

from typing import Any

import numpy as np
from op_check import OpProgram

from fleetx import static

RNG = np.random.default_rng(0)
LENGTHS = [2, 3, 1]


def rows(*shape: int) -> np.ndarray:
    return RNG.uniform(-1, 1, shape)


def split(x: np.ndarray, lengths: list[int]) -> list[np.ndarray]:
    return np.split(x, np.cumsum(lengths)[:-1])


def lod_of(type: str, inputs: dict[str, Any], attrs: dict[str, Any], slot: str = "Out") -> Any:
    """Return the offsets that an op gives its output."""
    program = OpProgram(type, inputs, attrs, {})
    executor = static.Executor(static.CPUPlace())
    (found,) = executor.run(
        program.main, feed=program.feeds, fetch_list=program.outputs[slot], return_numpy=False
    )
    return found.lod()
