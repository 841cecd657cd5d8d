"""Unique names."""

from fleetx.static.unique_name import UniqueNameGenerator, generate, guard, switch
from paddle._coverage import missing

__all__ = ["UniqueNameGenerator", "generate", "guard", "switch"]

__getattr__ = missing(__name__)
