"""The experimental part of Paddle 1.x: data generators, the Fleet API."""

from typing import TYPE_CHECKING

from paddle.fluid.incubate import data_generator

if TYPE_CHECKING:  # loaded on first use, by the `__getattr__` that all modules have
    from paddle.fluid.incubate import fleet

__all__ = ["data_generator", "fleet"]
