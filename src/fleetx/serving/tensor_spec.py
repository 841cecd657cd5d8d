"""What an input or output of a model looks like, and whether an array does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fleetx.serving.errors import RequestError

Arrays = dict[str, np.ndarray[Any, Any]]


@dataclass(frozen=True)
class TensorSpec:
    """Name, shape and element type of an input or output."""

    name: str
    """The name in requests and answers."""

    shape: tuple[int, ...]
    """The dimensions; -1 where any size will do."""

    dtype: str
    """The element type as NumPy calls it; bfloat16 travels as float32."""

    def to_dict(self) -> dict[str, Any]:
        """Return the description that `GET /v1/model` gives."""
        return {"name": self.name, "shape": list(self.shape), "dtype": self.dtype}

    def fits(self, shape: Sequence[int]) -> bool:
        """Tell whether an array of this shape will do."""
        return len(shape) == len(self.shape) and all(
            want in (-1, size) for want, size in zip(self.shape, shape, strict=True)
        )

    def __str__(self) -> str:
        sizes = ", ".join("any" if size < 0 else str(size) for size in self.shape)
        return f"{self.dtype} [{sizes}]"


def check_names(specs: Sequence[TensorSpec], given: Mapping[str, Any]) -> None:
    """Raise a sentence about an input that is missing or that the model does not have."""
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
    """Raise a sentence about the first array that is not what the model takes."""
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
