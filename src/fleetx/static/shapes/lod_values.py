"""Conversion between tensors with offsets (LoD) and the plain arrays of feeds and fetches."""

from __future__ import annotations

from typing import Any

import numpy as np

from fleetx.static.errors import ArgumentError
from fleetx.static.graph.dtypes import to_numpy
from fleetx.static.readers.lod_tensor import LoDTensor
from fleetx.static.run.place import Place
from fleetx.static.run.scope import Scope, global_scope


def as_numpy(tensor: Any) -> Any:
    """Return a tensor's array, None while it is empty; a list for a list of tensors."""
    if isinstance(tensor, list | tuple):
        return [as_numpy(item) for item in tensor]
    if not isinstance(tensor, LoDTensor):
        raise ArgumentError(f"as_numpy() takes a LoDTensor, not {type(tensor).__name__}.")
    if tensor.lod():
        raise RuntimeError(
            "The tensor holds sequences (LoD), which an array does not; take the LoDTensor itself "
            "(Executor.run with return_numpy=False)."
        )
    return np.array(tensor) if tensor._is_initialized() else None


def as_lod_tensor(data: Any, place: Place | None = None, dtype: Any = None) -> LoDTensor:
    """Return a LoDTensor with a copy of an array; a number needs a `dtype` and gets shape [1].

    Lists and tuples need a `dtype` too; nested ones must have equal lengths.
    """
    if isinstance(data, list | tuple) and (dtype is not None or isinstance(data, list)):
        if dtype is None:
            raise RuntimeError(
                "A list may hold sequences of different lengths; convert it to a LoDTensor with "
                "create_lod_tensor(), or give a dtype."
            )
        try:
            data = np.array(data, dtype=to_numpy(dtype))
        except ValueError as error:
            raise TypeError(f"the list cannot be converted to an array: {error}.") from error
    if isinstance(data, dict):
        raise TypeError("a tensor is created from an array, a list or a number, not a dict.")
    if not isinstance(data, np.ndarray) and np.isscalar(data):
        if dtype is None:
            raise ArgumentError("creating a tensor from a number needs a dtype.")
        data = np.array([data], dtype=to_numpy(dtype))
    tensor = LoDTensor()
    tensor.set(data, place)
    return tensor


def fetch_var(name: str, scope: Scope | None = None, return_numpy: bool = True) -> Any:
    """Return the value that a scope (the global one by default) holds under a name."""
    if not isinstance(name, str):
        raise ArgumentError(f"fetch_var() takes a name (str), not {type(name).__name__}.")
    found = (global_scope() if scope is None else scope).find_var(name)
    if found is None:
        raise ArgumentError(
            f"Cannot find {name!r} in the scope; only persistable variables stay there "
            "(var.persistable = True)."
        )
    tensor = found.get_tensor()
    return as_numpy(tensor) if return_numpy else tensor


def set_feed_variable(scope: Scope, tensor: LoDTensor, name: str, index: int) -> None:
    """Put a tensor at a column of the feed list that a scope holds under a name."""
    held = scope.var(name).get_fetch_list()
    held.extend(LoDTensor() for _ in range(index + 1 - len(held)))
    held[index] = tensor


def get_fetch_variable(scope: Scope, name: str, index: int) -> LoDTensor:
    """Return the tensor at a column of the feed or fetch list under a name."""
    found = scope.find_var(name)
    held = [] if found is None else found.get_fetch_list()
    if not 0 <= index < len(held):
        raise IndexError(f"{name!r} holds {len(held)} values, so there is none at {index}.")
    value: LoDTensor = held[index]
    return value
