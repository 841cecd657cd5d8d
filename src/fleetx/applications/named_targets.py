"""The targets of a model besides its loss, in a list with names.

Scripts can use `[model.loss] + model.target` as well as `model.target["acc1"]`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fleetx.static.graph.variable import Variable


class Targets(list[Variable]):
    """Variables in order, accessible by index or name."""

    def __init__(self, named: Mapping[str, Variable]) -> None:
        super().__init__(named.values())
        self._names = tuple(named)

    def keys(self) -> tuple[str, ...]:
        """Return the names, in the order of the list."""
        return self._names

    def __getitem__(self, key: Any) -> Any:
        """Return a target by its index or name."""
        if not isinstance(key, str):
            return super().__getitem__(key)
        if key not in self._names:
            has = ", ".join(self._names) or "none"
            raise KeyError(f"This model has no target {key!r}; it has: {has}.")
        return super().__getitem__(self._names.index(key))
