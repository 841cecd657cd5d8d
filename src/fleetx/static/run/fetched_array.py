"""Fetched values: NumPy arrays that may be printed with `%f` when they hold one number.

Fluid programs print a loss of shape [1] with `"%f" % loss`. NumPy 2.4 and newer do not convert an
array with dimensions to a number; an array of one element fetched from a program still allows it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from fleetx import torch_private
from fleetx.static.graph.op_registry import GRAD_SUFFIX
from fleetx.static.run.place import CPUPlace
from fleetx.static.run.scope import tensor_to_numpy


class OneValue(np.float32):
    """A float32 that computes with Python floats in double precision, as before NumPy 2.

    Scripts compare fetched values with numbers that they computed; rounding these to float32 first
    would change the difference.
    """

    def __add__(self, other: Any) -> Any:
        return float(self) + other if isinstance(other, float) else super().__add__(other)

    def __radd__(self, other: Any) -> Any:
        return other + float(self) if isinstance(other, float) else super().__radd__(other)

    def __sub__(self, other: Any) -> Any:
        return float(self) - other if isinstance(other, float) else super().__sub__(other)

    def __rsub__(self, other: Any) -> Any:
        return other - float(self) if isinstance(other, float) else super().__rsub__(other)

    def __repr__(self) -> str:
        return repr(np.float32(self))


class OneValueArray(np.ndarray):
    """An array that converts to a number if it has exactly one element."""

    def __getitem__(self, index: Any) -> Any:
        found = super().__getitem__(index)
        return OneValue(found) if type(found) is np.float32 else found

    def __repr__(self) -> str:
        return repr(self.view(np.ndarray))

    def __float__(self) -> float:
        return float(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __index__(self) -> int:
        value = self.item()
        if not isinstance(value, int):
            raise TypeError("only integer arrays of one element can be used as an index")
        return value


def as_fetched(value: Any, copy: bool | None) -> Any:
    """Return a value as `Executor.run` returns it: an array that later runs do not change.

    `copy` states whether the value's memory is shared (None: only if it is a view).
    """
    if not isinstance(value, torch.Tensor):
        return [as_fetched(v, copy) for v in value] if isinstance(value, list) else value
    if copy or (copy is None and torch_private.base_of(value) is not None):
        value = value.detach().clone()
    array = tensor_to_numpy(value)
    return array.view(OneValueArray) if array.size == 1 else array


def lod_of_fetched(name: str, value: Any, lods: dict[str, Any]) -> Any:
    """Return the offsets of a fetched value; a gradient has those of its variable."""
    source = name.partition(GRAD_SUFFIX)[0]
    lod = lods.get(name) or lods.get(source)
    fits = source == name or (lod and len(value) == lod[-1][-1])
    return lod if fits else None


def as_lod_tensor(value: Any, lod: Any, *, copy: bool) -> Any:
    """Return a value as `Executor.run` returns it with `return_numpy=False`."""
    from fleetx.static.readers.lod_tensor import LoDTensor

    if not isinstance(value, torch.Tensor):
        return value
    value = value.detach()
    tensor = LoDTensor()
    tensor.set(value, CPUPlace(), zero_copy=not copy)
    if lod:
        tensor.set_lod(lod)
    return tensor
