"""Helpers for text and numbers from the time of Python 2."""

import math
from collections.abc import Callable
from typing import Any

__all__ = [
    "floor_division",
    "get_exception_message",
    "long_type",
    "round",
    "to_bytes",
    "to_text",
]

long_type = int
int_type = int


def _convert(obj: Any, convert: Callable[[Any], Any], inplace: bool) -> Any:
    if isinstance(obj, list):
        done = [convert(item) for item in obj]
        if inplace:
            obj[:] = done
            return obj
        return done
    if isinstance(obj, set):
        changed = {convert(item) for item in obj}
        if inplace:
            obj.clear()
            obj.update(changed)
            return obj
        return changed
    if isinstance(obj, dict):
        mapped = {convert(key): convert(value) for key, value in obj.items()}
        if inplace:
            obj.clear()
            obj.update(mapped)
            return obj
        return mapped
    return convert(obj)


def to_text(obj: Any, encoding: str = "utf-8", inplace: bool = False) -> Any:
    """Return bytes, or the bytes in a list, set or dict, as text."""

    def convert(item: Any) -> Any:
        return item.decode(encoding) if isinstance(item, bytes) else item

    return _convert(obj, convert, inplace)


def to_bytes(obj: Any, encoding: str = "utf-8", inplace: bool = False) -> Any:
    """Return text, or the text in a list or set, as bytes."""

    def convert(item: Any) -> Any:
        return item.encode(encoding) if isinstance(item, str) else item

    return _convert(obj, convert, inplace)


def round(x: float, d: int = 0) -> float:
    """Return the number rounded half away from zero, as Python 2 did."""
    if math.isinf(x) or math.isnan(x):
        return x
    factor = 10**d
    return math.copysign(math.floor(abs(x) * factor + 0.5) / factor, x) if x else 0.0


def floor_division(x: Any, y: Any) -> Any:
    """Return x // y."""
    return x // y


def get_exception_message(exc: BaseException) -> str:
    """Return the message of an exception."""
    assert exc is not None, "get_exception_message takes an exception, not None."
    return str(exc)
