"""An index of ids and a store of rows: the compiled modules, or their fallbacks in NumPy.

Both give the same bits, so that servers and workers of one job may use different ones. The compiled
modules are about ten times as fast.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetx.kernels import compiled

_INDEX, _ROWS = "fleetx.kernels._index", "fleetx.kernels._rows"

if TYPE_CHECKING or compiled.is_there(_INDEX):
    from fleetx.kernels._index import Index, route, split, unique
else:
    from fleetx.kernels.index_in_numpy import Index, route, split, unique

if TYPE_CHECKING or compiled.is_there(_ROWS):
    from fleetx.kernels._rows import RowStore, add_rows, normal, uniform
else:
    from fleetx.kernels.rows_in_numpy import RowStore, add_rows, normal, uniform

__all__ = ["Index", "RowStore", "add_rows", "normal", "route", "split", "uniform", "unique"]


def slower_because() -> str | None:
    """Return a sentence about missing compiled modules; None if there are none."""
    return compiled.slower_because(_INDEX, _ROWS)
