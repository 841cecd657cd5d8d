"""Scope: where the data of persistable variables lives between runs.

A scope is a tree of dictionaries; a name is looked up in the scope itself, then in its parents.
Values are torch tensors (or Python lists for tensor arrays), with the offsets of variable-length
data.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch

from fleetx.static.run.scope_array import ScopeArray
from fleetx.static.run.scope_tensor import ScopeTensor
from fleetx.static.run.selected_rows import SelectedRows


class ScopeVariable:
    """The value of one name in a scope, with its offsets (LoD) if any."""

    __slots__ = ("name", "value", "lod", "_leaf", "_leaf_of", "_selected")

    def __init__(self, name: str) -> None:
        self.name = name
        self.value: Any = None
        self.lod: list[list[int]] = []
        self._leaf: Any = None
        self._leaf_of: Any = None
        self._selected: SelectedRows | None = None

    def leaf(self) -> torch.Tensor:
        """Return the value as a tensor that autograd tracks, sharing memory with it."""
        if self._leaf_of is not self.value:
            self._leaf = self.value.detach().requires_grad_()
            self._leaf_of = self.value
        return self._leaf

    def get_tensor(self) -> ScopeTensor:
        """Return a handle to read and set the value."""
        return ScopeTensor(self)

    def get_selected_rows(self) -> SelectedRows:
        """Return a handle to read and set rows, their indices and the height."""
        if self._selected is None or not self._selected.shows(self.value):
            self._selected = SelectedRows(variable=self)
        return self._selected

    def get_fetch_list(self) -> Any:
        """Return the list of values held by this variable, a new empty one if there is none."""
        if self.value is None:
            self.value = []
        return self.value

    def get_lod_tensor_array(self) -> Any:
        """Return the list of tensors held by this variable, a new empty one if there is none."""
        return ScopeArray(self.get_fetch_list())

    def get_lod_rank_table(self) -> Any:
        """Return the rank table held by this variable."""
        return self.value

    def is_initialized(self) -> bool:
        """Return whether the variable has a value."""
        return self.value is not None

    def is_int(self) -> bool:
        """Return whether the value is a plain integer."""
        return isinstance(self.value, int)

    def set_int(self, value: int) -> None:
        """Set the value to a plain integer."""
        self.value = value

    def get_int(self) -> int:
        """Return the value as a plain integer."""
        return int(self.value)


class Scope:
    """Values by name; names that are missing are looked up in the parent."""

    def __init__(self, parent: Scope | None = None) -> None:
        self._variables: dict[str, ScopeVariable] = {}
        self._parent = parent
        self._kids: list[Scope] = []
        self._removed = False

    def var(self, name: str) -> ScopeVariable:
        """Return the variable of this name; create it in this scope if it does not exist."""
        found = self.find_var(name)
        if found is None:
            found = self._variables[name] = ScopeVariable(name)
        return found

    def find_var(self, name: str) -> ScopeVariable | None:
        """Return the variable of this name from here or a parent, or None."""
        scope: Scope | None = self
        while scope is not None:
            found = scope._variables.get(name)
            if found is not None:
                return found
            scope = scope._parent
        return None

    def new_scope(self) -> Scope:
        """Return a new scope whose parent is this one."""
        kid = Scope(self)
        self._kids.append(kid)
        return kid

    def drop_kids(self) -> None:
        """Drop all child scopes."""
        self._kids.clear()

    def _remove_from_pool(self) -> None:
        """Clear the scope; a second call raises an error, as in Paddle."""
        if self._removed:
            raise RuntimeError("the scope has already been removed.")
        self._removed = True
        self._variables.clear()
        self._kids.clear()

    def erase(self, names: Sequence[str]) -> None:
        """Remove variables of this scope."""
        for name in names:
            self._variables.pop(name, None)

    def local_var_names(self) -> list[str]:
        """Return the names held by this scope itself."""
        return list(self._variables)


def tensor_to_numpy(tensor: torch.Tensor) -> np.ndarray[Any, Any]:
    """Return a tensor as an array, sharing memory where possible; bfloat16 becomes uint16 bits."""
    if tensor.requires_grad:
        tensor = tensor.detach()
    if tensor.dtype is torch.bfloat16:
        return tensor.cpu().contiguous().view(torch.int16).numpy().view(np.uint16)
    return tensor.numpy() if tensor.is_cpu else tensor.cpu().numpy()


_global_scope = Scope()


def global_scope() -> Scope:
    """Return the default scope of `Executor.run`."""
    return _global_scope


def switch_scope(scope: Scope) -> Scope:
    """Set the default scope; return the previous one."""
    global _global_scope
    old, _global_scope = _global_scope, scope
    return old


@contextlib.contextmanager
def scope_guard(scope: Scope) -> Iterator[None]:
    """Use another scope by default inside the block."""
    old = switch_scope(scope)
    try:
        yield
    finally:
        switch_scope(old)
