"""The common parts of the compiled modules' fallbacks: arguments as arrays, and a hash.

Arguments are validated as in the compiled modules, and results have the same bits.
"""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

_LOW = np.uint64(0xFFFFFFFF)


def take_bytes(given: Any, name: str, *, writable: bool = False) -> tuple[Array, str]:
    """Return the memory of an object with a contiguous buffer, and the format of its elements."""
    view = memoryview(given)
    if not view.c_contiguous:
        raise BufferError(f"{name} must be contiguous.")
    if writable and view.readonly:
        raise BufferError(f"{name} must be writable.")
    return np.asarray(view).reshape(-1).view(np.uint8), view.format.lstrip("@=<")


def take_ids(given: Any, name: str, *, writable: bool = False) -> Array:
    """Return an array of 64-bit integers."""
    return _take(given, name, "lq", "integers", writable).view(np.int64)


def take_doubles(given: Any, name: str, *, writable: bool = False) -> Array:
    """Return an array of doubles."""
    return _take(given, name, "d", "floating-point numbers", writable).view(np.float64)


def take_numbers(given: Any, name: str, *, writable: bool = False) -> Array:
    """Return an array of floats or doubles."""
    memory, kind = take_bytes(given, name, writable=writable)
    if kind not in ("f", "d"):
        raise TypeError(f"{name} must be float32 or float64, not of format {kind!r}.")
    return memory.view(np.float32 if kind == "f" else np.float64)


def _take(given: Any, name: str, kinds: str, called: str, writable: bool) -> Array:
    memory, kind = take_bytes(given, name, writable=writable)
    if len(kind) != 1 or kind not in kinds:
        raise TypeError(f"{name} must be an array of 64-bit {called}, not of format {kind!r}.")
    return memory


def check_lengths(first: Array, second: Array, names: str) -> None:
    """Reject arrays of different lengths."""
    if len(first) != len(second):
        raise ValueError(
            f"{names} must have equal lengths, not {first.nbytes} and {second.nbytes} bytes."
        )


def mix(values: Array) -> Array:
    """Return the hashes of 64-bit numbers: the finalizer of splitmix64."""
    mixed = values ^ (values >> np.uint64(30))
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    mixed ^= mixed >> np.uint64(27)
    mixed *= np.uint64(0x94D049BB133111EB)
    mixed ^= mixed >> np.uint64(31)
    return mixed


def reduce(hashes: Array, limit: int) -> Array:
    """Map 64-bit hashes to 0 .. limit-1, which has at most 32 bits: the upper half of a product."""
    by = np.uint64(limit)
    upper = (hashes >> np.uint64(32)) * by
    upper += (hashes & _LOW) * by >> np.uint64(32)
    return (upper >> np.uint64(32)).astype(np.int64)
