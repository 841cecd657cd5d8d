"""SelectedRows: some rows of a tall tensor, as Paddle's scripts read and set them in a scope.

The scope's variable holds a torch sparse tensor for the ops; this is a handle on it. The values of
a row that occurs more than once are summed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from fleetx.kernels.row_gradients import rows_of
from fleetx.static.run.scope_tensor import ScopeTensor

if TYPE_CHECKING:
    from fleetx.static.run.scope import ScopeVariable


class SelectedRows:
    """Rows by index, and the height of the whole tensor; or a handle on a variable of a scope.

    The next run uses the values that are set through a handle.
    """

    def __init__(
        self, rows: Sequence[int] = (), height: int = 0, *, variable: ScopeVariable | None = None
    ) -> None:
        self._rows = [int(row) for row in rows]
        self._height = int(height)
        self._values = _Values(self)
        self._variable = variable
        self._shown: Any = None
        if variable is not None:
            self._read(variable)

    def _read(self, variable: ScopeVariable, filled: bool = False) -> None:
        value = self._shown = variable.value
        if isinstance(value, torch.Tensor) and value.layout is torch.sparse_coo:
            ids, values = rows_of(value)
            self._rows = ids.tolist()
            self._height = int(value.shape[0])
            self._values.hold(values)
        elif filled and isinstance(value, torch.Tensor):
            self._values.hold(value)  # written by an op: values whose rows are not set yet
        elif value is not None:
            raise TypeError(f"variable {variable.name!r} holds no selected rows.")

    def follow(self) -> None:
        """Read the variable again if a run has written it."""
        if self._variable is not None and not self.shows(self._variable.value):
            self._read(self._variable, filled=True)

    def shows(self, value: Any) -> bool:
        """Return whether `value` is the one that this handle shows."""
        return self._shown is value

    def rows(self) -> list[int]:
        """Return the row indices."""
        self.follow()
        return list(self._rows)

    def set_rows(self, rows: Sequence[int]) -> None:
        """Set the row indices."""
        self._rows = [int(row) for row in rows]
        self.publish()

    def height(self) -> int:
        """Return the number of rows of the whole tensor."""
        self.follow()
        return self._height

    def set_height(self, height: int) -> None:
        """Set the number of rows of the whole tensor."""
        self._height = int(height)
        self.publish()

    def numel(self) -> int:
        """Return the number of elements."""
        self.follow()
        values = self._values.value
        return values.numel() if isinstance(values, torch.Tensor) else 0

    def get_tensor(self) -> ScopeTensor:
        """Return a handle to read and set the values of the rows."""
        self.follow()
        return ScopeTensor(self._values)  # type: ignore[arg-type] # has the interface of a handle

    def sync_index(self) -> None:
        """Do nothing: there is no index to update."""

    def publish(self) -> None:
        """Store rows and values in the scope, as soon as their sizes match."""
        values = self._values.value
        if isinstance(values, torch.Tensor) and len(values) == len(self._rows):
            height = max(self._height, max(self._rows, default=-1) + 1)
            self._shown = torch.sparse_coo_tensor(
                torch.tensor([self._rows], dtype=torch.int64, device=values.device),
                values,
                (height, *values.shape[1:]),
                check_invariants=True,
            )
            if self._variable is not None:
                self._variable.value = self._shown


class _Values:
    """The values of rows, as a variable that notifies its owner when it is set."""

    def __init__(self, owner: SelectedRows) -> None:
        self._owner = owner
        self._held: Any = None
        self.name = "values of selected rows"
        self.lod: list[list[int]] = []

    def hold(self, value: torch.Tensor) -> None:
        """Take the first value."""
        self._held = value

    @property
    def value(self) -> Any:
        """The tensor, None if it was not set."""
        self._owner.follow()
        return self._held

    @value.setter
    def value(self, value: Any) -> None:
        self._owner.follow()
        self._held = value
        self._owner.publish()
