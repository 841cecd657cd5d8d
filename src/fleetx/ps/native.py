"""The compiled modules, with a helpful sentence where they were not compiled."""

from __future__ import annotations

try:
    from fleetx.ps._index import Index, route, split, unique
    from fleetx.ps._rows import RowStore, add_rows, normal, uniform
except ImportError as error:
    raise ImportError(
        "the compiled part of fleetx.ps is missing or was built for another Python: install fleetx "
        "again (pip install -e .), or run 'python setup.py build_ext --inplace' in its sources; "
        f"both need a C compiler ({error})."
    ) from error

__all__ = ["Index", "RowStore", "add_rows", "normal", "route", "split", "uniform", "unique"]
