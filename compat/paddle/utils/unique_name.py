"""Unique names."""

from paddle.fluid.unique_name import UniqueNameGenerator, generate, guard, switch
