"""fluid.data: a variable to feed, without an implicit batch dimension."""

from typing import Any

from fleetx.static.graph.variable import Variable
from fleetx.static.layers.io import static_data

__all__ = ["data"]


def data(name: str, shape: Any, dtype: Any = "float32", lod_level: int = 0) -> Variable:
    """Return the variable to feed under `name`; None or -1 is a dimension that varies."""
    return static_data(name, shape, dtype, lod_level)
