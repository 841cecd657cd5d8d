"""Rewriting programs; what is left of it for single machines."""

from paddle._coverage import missing
from paddle.fluid._memory import memory_optimize, release_memory

__all__ = ["memory_optimize", "release_memory"]

__getattr__ = missing(__name__)
