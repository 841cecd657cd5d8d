"""Compute `__all__` of modules and packages from their definitions and imports."""

from __future__ import annotations

from types import ModuleType
from typing import Any


def export_defined(names: dict[str, Any], *more: str, without: str = "") -> None:
    """Set `__all__` in a module's globals: its public functions and classes, and `more` names.

    Call it at the end of a module. Imported names, names with an underscore, and those in `without`
    (separated by spaces) are excluded.
    """
    module, left_out = names["__name__"], without.split()
    defined = [
        name
        for name, value in names.items()
        if not name.startswith("_")
        and name not in left_out
        and getattr(value, "__module__", None) == module
    ]
    names["__all__"] = sorted([*defined, *more])


def export_imported(names: dict[str, Any]) -> None:
    """Set `__all__` in a package's globals: the public names it imports, without the modules."""
    names["__all__"] = sorted(
        name
        for name, value in names.items()
        if not name.startswith("_")
        and not isinstance(value, ModuleType)
        and getattr(value, "__module__", None) != __name__
    )
