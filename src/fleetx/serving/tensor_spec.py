"""The specification of a model's input or output, and the validation of arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fleetx.serving.request_error import RequestError

Arrays = dict[str, np.ndarray[Any, Any]]


@dataclass(frozen=True)
class TensorSpec:
    """Name, shape and element type of an input or output."""

    name: str
    """The name in requests and responses."""

    shape: tuple[int, ...]
    """The dimensions; -1 if dynamic."""

    dtype: str
    """The element type in NumPy's terms; bfloat16 is sent as float32."""

    def to_dict(self) -> dict[str, Any]:
        """Return the description for `GET /v1/model`."""
        return {"name": self.name, "shape": list(self.shape), "dtype": self.dtype}

    def fits(self, shape: Sequence[int]) -> bool:
        """Return whether a shape matches."""
        return len(shape) == len(self.shape) and all(
            want in (-1, size) for want, size in zip(self.shape, shape, strict=True)
        )

    def __str__(self) -> str:
        sizes = ", ".join("any" if size < 0 else str(size) for size in self.shape)
        return f"{self.dtype} [{sizes}]"


def check_names(specs: Sequence[TensorSpec], given: Mapping[str, Any]) -> None:
    """Raise an error for an input that is missing or unknown."""
    names = [spec.name for spec in specs]
    for name in given:
        if name not in names:
            raise RequestError(
                400, f"the model has no input {name!r}; its inputs are {', '.join(names)}."
            )
    for name in names:
        if name not in given:
            raise RequestError(400, f"input {name!r} is missing from the request.")


def check_arrays(specs: Sequence[TensorSpec], arrays: Arrays) -> None:
    """Raise an error for the first array that does not match the model."""
    check_names(specs, arrays)
    for spec in specs:
        array = arrays[spec.name]
        if array.dtype != spec.dtype:
            raise RequestError(
                400, f"input {spec.name!r} holds {array.dtype}, but the model takes {spec.dtype}."
            )
        if not spec.fits(array.shape):
            raise RequestError(
                400,
                f"input {spec.name!r} has the shape {list(array.shape)}, but the model takes "
                f"{spec}.",
            )
