"""Unique names."""

from paddle._coverage import missing
from paddle.fluid.unique_name import UniqueNameGenerator, generate, guard, switch

__all__ = ["UniqueNameGenerator", "generate", "guard", "switch"]

__getattr__ = missing(__name__)
