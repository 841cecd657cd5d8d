"""InputSpec: the specification of a model's input, without a variable."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fleetx.static.graph.dtypes import convert_dtype
from fleetx.static.graph.variable import Variable


class InputSpec:
    """Shape (None or -1 where it varies), element type and name of an input."""

    def __init__(
        self,
        shape: Sequence[int | None],
        dtype: Any = "float32",
        name: str | None = None,
        stop_gradient: bool = False,
    ) -> None:
        if not isinstance(shape, list | tuple):
            raise TypeError(f"shape of InputSpec must be a list, not {type(shape).__name__}.")
        self.shape = tuple(-1 if dim is None else int(dim) for dim in shape)
        if any(dim < -1 for dim in self.shape):
            raise ValueError(f"a dimension of InputSpec must be None, -1 or more, not {shape!r}.")
        self.dtype = None if dtype is None else convert_dtype(dtype)
        self.name = name
        self.stop_gradient = stop_gradient

    @classmethod
    def from_tensor(cls, tensor: Variable, name: str | None = None) -> InputSpec:
        """Return the spec of a Variable."""
        if not isinstance(tensor, Variable):
            raise TypeError(f"from_tensor takes a Variable, not {type(tensor).__name__}.")
        return cls(tensor.shape, tensor.dtype, name or tensor.name)

    @classmethod
    def from_numpy(cls, ndarray: np.ndarray[Any, Any], name: str | None = None) -> InputSpec:
        """Return the spec of an array."""
        return cls(ndarray.shape, ndarray.dtype, name)

    def batch(self, batch_size: int) -> InputSpec:
        """Prepend a batch dimension."""
        if isinstance(batch_size, bool) or not isinstance(batch_size, int):
            raise TypeError(f"batch_size must be a number, not {type(batch_size).__name__}.")
        self.shape = (batch_size, *self.shape)
        return self

    def unbatch(self) -> InputSpec:
        """Remove the first dimension."""
        if not self.shape:
            raise ValueError("InputSpec.unbatch needs a shape that is not empty.")
        self.shape = self.shape[1:]
        return self

    def __eq__(self, other: object) -> bool:
        return isinstance(other, InputSpec) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> tuple[Any, ...]:
        return self.shape, self.dtype, self.name, self.stop_gradient

    def __repr__(self) -> str:
        return f"InputSpec(shape={self.shape}, dtype={self.dtype}, name={self.name})"
