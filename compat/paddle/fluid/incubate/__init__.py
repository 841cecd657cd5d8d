"""What Paddle 1.x had on trial: writers of data, the Fleet API."""

from typing import TYPE_CHECKING

from paddle.fluid.incubate import data_generator

if TYPE_CHECKING:  # loaded on first use, by the `__getattr__` that all modules have
    from paddle.fluid.incubate import fleet

__all__ = ["data_generator", "fleet"]
