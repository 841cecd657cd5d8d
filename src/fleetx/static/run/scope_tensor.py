"""ScopeTensor: the tensor of a scope's variable, read and set like any LoDTensor."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from fleetx.static.readers.lod_tensor import LoD, LoDTensor
from fleetx.static.run.place import CPUPlace, CUDAPlace, Place

if TYPE_CHECKING:
    from fleetx.static.run.scope import ScopeVariable


class ScopeTensor(LoDTensor):
    """A handle on a scope variable; the next run uses the value that is set."""

    def __init__(self, variable: ScopeVariable) -> None:
        self._variable = variable

    # The state of a LoDTensor, stored in the variable.
    @property
    def _value(self) -> torch.Tensor | None:  # type: ignore[override]
        value = self._variable.value
        return value if isinstance(value, torch.Tensor) else None

    @_value.setter
    def _value(self, value: Any) -> None:
        if isinstance(value, np.ndarray):
            # NumPy has no bfloat16: its bits are stored as uint16.
            bits = value.dtype == np.uint16
            value = torch.from_numpy(np.array(value.view(np.int16) if bits else value, order="C"))
            value = value.view(torch.bfloat16) if bits else value
        self._variable.value = value

    @property
    def _lod(self) -> LoD:  # type: ignore[override]
        return self._variable.lod

    @_lod.setter
    def _lod(self, lod: LoD) -> None:
        self._variable.lod = lod

    @property
    def _at(self) -> Place:  # type: ignore[override]
        value = self._value
        if value is None or value.device.type == "cpu":
            return CPUPlace()
        return CUDAPlace(value.device.index or 0)

    @_at.setter
    def _at(self, place: Place) -> None:
        value = self._value
        if value is not None:
            self._variable.value = value.to(place.device())

    def numpy(self) -> np.ndarray[Any, Any]:
        """Return a copy of the value as an array."""
        if self._value is None:
            raise RuntimeError(
                f"Variable {self._variable.name!r} holds no tensor yet; run the startup program "
                "first."
            )
        return super().numpy().copy()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        return super().__array__(dtype, None if copy else copy)  # `numpy` has copied it

    def __len__(self) -> int:
        return self._rows()
