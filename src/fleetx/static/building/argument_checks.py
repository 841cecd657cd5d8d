"""Checks of what layers are called with.

Each refuses with one sentence that names the argument, the layer and what it takes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from fleetx.static.graph.dtypes import dtype_name

_DATA_TYPES = (
    *("bool", "float16", "bfloat16", "float32", "float64", "int8", "int16", "int32", "int64"),
    *("uint8", "complex64", "complex128"),
)


def convert_dtype(dtype: Any) -> str:
    """Return the name ('float32', ...) of an element type given in any of its spellings."""
    try:
        name = dtype_name(dtype)
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"dtype must be one of {', '.join(_DATA_TYPES)}, but received {dtype!r}."
        ) from error
    if name not in _DATA_TYPES:
        raise TypeError(f"dtype must be one of {', '.join(_DATA_TYPES)}, but received {dtype!r}.")
    return name


def check_type(
    input: Any,
    input_name: str,
    expected_type: type | tuple[type, ...],
    op_name: str,
    extra_message: str = "",
) -> None:
    """Refuse an argument of another Python type."""
    if isinstance(input, expected_type):
        return
    kinds = expected_type if isinstance(expected_type, tuple) else (expected_type,)
    raise TypeError(
        _join(
            f"The type of '{input_name}' in {op_name} must be {_words(k.__name__ for k in kinds)}, "
            f"but received {type(input).__name__}.",
            extra_message,
        )
    )


def check_dtype(
    input_dtype: Any,
    input_name: str,
    expected_dtype: str | Iterable[str],
    op_name: str,
    extra_message: str = "",
) -> None:
    """Refuse an element type that the layer does not take."""
    allowed = [expected_dtype] if isinstance(expected_dtype, str) else list(expected_dtype)
    name = convert_dtype(input_dtype)
    if name not in allowed:
        raise TypeError(
            _join(
                f"The data type of '{input_name}' in {op_name} must be {_words(allowed)}, "
                f"but received {name}.",
                extra_message,
            )
        )


def check_variable_and_dtype(
    input: Any,
    input_name: str,
    expected_dtype: str | Iterable[str],
    op_name: str,
    extra_message: str = "",
) -> None:
    """Refuse anything but a Variable of one of the given element types."""
    from fleetx.static.graph.variable import Variable

    check_type(input, input_name, Variable, op_name, extra_message)
    check_dtype(input.dtype, input_name, expected_dtype, op_name, extra_message)


def _words(names: Iterable[str]) -> str:
    items = list(names)
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} or {items[-1]}"


def _join(sentence: str, extra: str) -> str:
    return f"{sentence} {extra}" if extra else sentence
