"""Reducing and gathering plain numbers and numpy arrays over processes.

For counts, metrics and agreements, not for gradients. Processes first exchange the types and shapes
of their values, so that arrays of different shapes can be gathered, and a reduction over different
shapes is an error that names them instead of a hang.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import torch

Array = np.ndarray[Any, np.dtype[Any]]

_DTYPES = [
    np.dtype(name)
    for name in (
        "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
        "float16", "float32", "float64",
    )
]  # fmt: skip
_MOST_DIMENSIONS = 8
MODES = ("sum", "max", "min")


class Channel(Protocol):
    """A group of processes that exchange tensors."""

    def all_reduce(self, tensor: torch.Tensor, mode: str) -> torch.Tensor:
        """Return the tensors of all processes reduced."""

    def all_gather(self, tensor: torch.Tensor) -> list[torch.Tensor]:
        """Return the tensors of all processes, which have the same shape."""

    def all_to_all(self, parts: list[torch.Tensor], sizes: list[int]) -> list[torch.Tensor]:
        """Send one part to each process; return the received parts, of the given lengths."""

    def barrier(self) -> None:
        """Wait until all processes have reached this point."""


class OwnChannel(Channel, Protocol):
    """A group with its own connections."""

    def close(self) -> None:
        """Close the connections, even if references to this object remain."""


def exchange(channel: Channel, rank: int, parcels: list[Array]) -> list[Array]:
    """Send one array of bytes to each process, including this one (`rank`); return the received."""
    lengths = channel.all_gather(torch.tensor([len(parcel) for parcel in parcels]))
    if len(lengths) != len(parcels):
        raise ValueError(f"{len(parcels)} parcels were given for {len(lengths)} processes.")
    sizes = [int(each[rank]) for each in lengths]
    parts = [torch.from_numpy(np.array(parcel, dtype=np.uint8)) for parcel in parcels]
    return [part.numpy() for part in channel.all_to_all(parts, sizes)]


def all_gather(channel: Channel, value: Any) -> list[Any]:
    """Return the values of all processes by rank: numbers as numbers, arrays as arrays."""
    array = _as_array(value)
    headers = _exchange_headers(channel, array)
    sizes = [_dtype(h).itemsize * int(np.prod(_shape(h), dtype=np.int64)) for h in headers]
    # Every process sends as many bytes as the longest value has.
    buffer = np.zeros(max(sizes), dtype=np.uint8)
    buffer[: array.nbytes] = np.frombuffer(array.tobytes(), dtype=np.uint8)
    parts = (
        channel.all_gather(torch.from_numpy(buffer))
        if max(sizes)
        else [torch.empty(0)] * len(headers)
    )
    result = []
    for header, size, part in zip(headers, sizes, parts, strict=True):
        raw = part.numpy().tobytes()[:size]
        found = np.frombuffer(raw, dtype=_dtype(header)).reshape(_shape(header)).copy()
        result.append(found.item() if found.ndim == 0 else found)
    return result


def all_reduce(channel: Channel, value: Any, mode: str = "sum") -> Any:
    """Return the elementwise sum, maximum or minimum of the values of all processes.

    The result has the shape of the values: a numpy number for a number, an array otherwise.
    """
    if mode not in MODES:
        raise ValueError(f"unknown mode: {mode!r}; a reduction is one of {', '.join(MODES)}.")
    array = _as_array(value)
    headers = _exchange_headers(channel, array)
    shapes = {_shape(header) for header in headers}
    if len(shapes) > 1:
        listed = ", ".join(f"{_shape(h)} of process {rank}" for rank, h in enumerate(headers))
        raise ValueError(f"all_reduce needs one shape everywhere, but there are {listed}.")
    dtype = np.result_type(*(_dtype(header) for header in headers))
    dtype = np.dtype(np.int64) if dtype.kind == "b" else dtype
    tensor = torch.from_numpy(array.astype(_travelling(dtype)))
    result: Array = channel.all_reduce(tensor, mode).numpy().astype(dtype)
    return result[()]


def _as_array(value: Any) -> Array:
    if isinstance(value, torch.Tensor):
        value = value.detach().cpu()
    array = np.ascontiguousarray(value).reshape(np.shape(value))
    if array.dtype not in _DTYPES or array.ndim > _MOST_DIMENSIONS:
        raise TypeError(
            f"only numbers and arrays of numbers can be exchanged between processes, not {value!r}."
        )
    return array


def _travelling(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the type in which torch's collectives reduce such numbers."""
    if dtype.kind == "f":
        return np.dtype(np.float32 if dtype.itemsize < 4 else dtype)
    return np.dtype(np.int64)


def _exchange_headers(channel: Channel, array: Array) -> list[list[int]]:
    dimensions = [*array.shape, *[0] * (_MOST_DIMENSIONS - array.ndim)]
    header = torch.tensor([_DTYPES.index(array.dtype), array.ndim, *dimensions])
    return [part.tolist() for part in channel.all_gather(header)]


def _dtype(header: list[int]) -> np.dtype[Any]:
    return _DTYPES[header[0]]


def _shape(header: list[int]) -> tuple[int, ...]:
    return tuple(header[2 : 2 + header[1]])
