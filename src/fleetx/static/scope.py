"""Scope: where the data of persistable variables lives between runs.

A scope is a tree of dictionaries; a name is looked up in the scope itself, then in its parents.
Values are torch tensors (or Python lists for tensor arrays); offsets of variable-length data lie
beside them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch

from fleetx.static.dtypes import VarType, convert_dtype


class ScopeVariable:
    """The value of one name in a scope, with its offsets (LoD) if it has some."""

    __slots__ = ("name", "value", "lod", "_leaf", "_leaf_of")

    def __init__(self, name: str) -> None:
        self.name = name
        self.value: Any = None
        self.lod: list[list[int]] = []
        self._leaf: Any = None
        self._leaf_of: Any = None

    def leaf(self) -> torch.Tensor:
        """Return the value as a tensor that autograd tracks, sharing memory with it."""
        if self._leaf_of is not self.value:
            self._leaf = self.value.detach().requires_grad_()
            self._leaf_of = self.value
        return self._leaf

    def get_tensor(self) -> ScopeTensor:
        """Return a handle to read and set the value."""
        return ScopeTensor(self)

    def get_lod_tensor_array(self) -> Any:
        """Return the list of tensors held by this variable, made empty if there is none."""
        if self.value is None:
            self.value = []
        return self.value

    def is_initialized(self) -> bool:
        """Tell whether the variable has a value."""
        return self.value is not None

    def set_int(self, value: int) -> None:
        """Hold a plain integer."""
        self.value = value

    def get_int(self) -> int:
        """Return the plain integer held."""
        return int(self.value)


class ScopeTensor:
    """A handle on a scope variable's tensor, with the methods of Paddle's LoDTensor."""

    def __init__(self, variable: ScopeVariable) -> None:
        self._variable = variable

    def set(self, value: Any, place: Any = None) -> None:
        """Replace the value by an array; it is copied. Its shape and type may differ from the
        old."""
        if not isinstance(value, torch.Tensor):
            array = np.asarray(value)
            dtype = torch.bfloat16 if array.dtype == np.uint16 else None
            value = torch.from_numpy(np.array(array.view(np.int16) if dtype else array, order="C"))
            value = value.view(dtype) if dtype else value
        else:
            value = value.detach().clone()
        device = place.device() if place is not None and hasattr(place, "device") else None
        self._variable.value = value if device is None else value.to(device)

    def _require(self) -> torch.Tensor:
        value = self._variable.value
        if not isinstance(value, torch.Tensor):
            raise RuntimeError(
                f"Variable {self._variable.name!r} holds no tensor yet; run the startup program "
                "first."
            )
        return value

    def numpy(self) -> np.ndarray[Any, Any]:
        """Return a copy of the value as an array."""
        return tensor_to_numpy(self._require()).copy()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        array = self.numpy()
        return array if dtype is None else array.astype(dtype)

    def __getitem__(self, index: Any) -> Any:
        return self.numpy()[index]

    def __len__(self) -> int:
        return len(self._require())

    def shape(self) -> list[int]:
        """Return the dimensions."""
        value = self._variable.value
        return [0] if value is None else list(value.shape)

    def _dtype(self) -> VarType:
        return convert_dtype(self._require().dtype)

    def _is_initialized(self) -> bool:
        return isinstance(self._variable.value, torch.Tensor)

    def _clear(self) -> None:
        self._variable.value = None

    def set_dims(self, dims: Sequence[int]) -> None:
        """Set the dimensions, keeping what is there if the size fits."""
        value = self._variable.value
        dims = [int(d) for d in dims]
        if isinstance(value, torch.Tensor) and value.numel() == int(np.prod(dims)):
            self._variable.value = value.reshape(dims)
        else:
            self._variable.value = torch.zeros(dims)

    _set_dims = set_dims

    def alloc_float(self, place: Any = None) -> None:
        """Make the value a float32 tensor of the same dimensions."""
        self._variable.value = torch.zeros(self.shape())

    _alloc_float = alloc_float

    def _get_dims(self) -> list[int]:
        return self.shape()

    def lod(self) -> list[list[int]]:
        """Return the offsets of variable-length sequences."""
        return self._variable.lod

    def set_lod(self, lod: Sequence[Sequence[int]]) -> None:
        """Set the offsets."""
        self._variable.lod = [list(level) for level in lod]

    def recursive_sequence_lengths(self) -> list[list[int]]:
        """Return the lengths of sequences, level by level."""
        return [[b - a for a, b in zip(v[:-1], v[1:], strict=True)] for v in self._variable.lod]

    def set_recursive_sequence_lengths(self, lengths: Sequence[Sequence[int]]) -> None:
        """Set the lengths of sequences, level by level."""
        self._variable.lod = [[0, *np.cumsum(level).tolist()] for level in lengths]


class Scope:
    """Values by name, with a parent to look further in."""

    def __init__(self, parent: Scope | None = None) -> None:
        self._variables: dict[str, ScopeVariable] = {}
        self._parent = parent
        self._kids: list[Scope] = []

    def var(self, name: str) -> ScopeVariable:
        """Return the variable of this name, made in this scope if it is nowhere."""
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
        """Forget all scopes made from this one."""
        self._kids.clear()

    def erase(self, names: Sequence[str]) -> None:
        """Forget variables of this scope."""
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
    """Return the scope in which `Executor.run` keeps values by default."""
    return _global_scope


def switch_scope(scope: Scope) -> Scope:
    """Make another scope the default; return the old one."""
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
