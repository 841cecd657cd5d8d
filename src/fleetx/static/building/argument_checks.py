"""Checks of layers' arguments.

Each raises an error of one sentence that names the argument, the layer and what it accepts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import UnionType
from typing import Any, get_args

from fleetx.static.errors import ArgumentError, UnknownTypeError
from fleetx.static.graph.dtypes import dtype_name
from fleetx.static.graph.variable import Variable

# Checks one argument: called with the value, the argument's name and the layer's name.
Rule = Callable[[Any, str, str], None]

_DATA_TYPES = (
    *("bool", "float16", "bfloat16", "float32", "float64", "int8", "int16", "int32", "int64"),
    *("uint8", "complex64", "complex128"),
)


def _unknown_dtype(dtype: Any) -> UnknownTypeError:
    names = ", ".join(_DATA_TYPES)
    return UnknownTypeError(f"dtype must be one of {names}, but received {dtype!r}.")


def convert_dtype(dtype: Any) -> str:
    """Return the name ('float32', ...) of an element type given in any of its spellings."""
    try:
        name = dtype_name(dtype)
    except (TypeError, ValueError) as error:
        raise _unknown_dtype(dtype) from error
    if name not in _DATA_TYPES:
        raise _unknown_dtype(dtype)
    return name


def check_type(
    input: Any,
    input_name: str,
    expected_type: type | tuple[type, ...],
    op_name: str,
    extra_message: str = "",
) -> None:
    """Raise a TypeError unless the argument has one of the Python types."""
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
    """Raise a TypeError unless the element type is one of those given."""
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
    """Raise a TypeError unless the argument is a Variable of one of the element types."""
    check_type(input, input_name, Variable, op_name, extra_message)
    check_dtype(input.dtype, input_name, expected_dtype, op_name, extra_message)


def rule_of(accepted: Any) -> Rule:
    """Return the check of an argument from what it accepts.

    Names of element types (`FLOATS`) accept Variables of these types; a Python type or a union
    (`int | Variable`) accepts its instances; a rule is returned as it is.
    """
    if isinstance(accepted, UnionType):
        accepted = get_args(accepted)
    if isinstance(accepted, type) or (
        isinstance(accepted, tuple) and isinstance(accepted[0], type)
    ):
        return lambda value, name, layer: check_type(value, name, accepted, layer)
    if isinstance(accepted, tuple | list):
        return lambda value, name, layer: check_variable_and_dtype(value, name, accepted, layer)
    rule: Rule = accepted
    return rule


def optional(accepted: Any) -> Rule:
    """Return a check that accepts None too."""
    rule = rule_of(accepted)
    return lambda value, name, layer: None if value is None else rule(value, name, layer)


def each(accepted: Any) -> Rule:
    """Return the check of a list: of each item, which a message names by its index."""
    rule = rule_of(accepted)

    def check(values: Any, name: str, layer: str) -> None:
        for i, value in enumerate(values):
            rule(value, f"{name}[{i}]", layer)

    return check


def as_dtype(*names: str) -> Rule:
    """Return the check of an argument that is itself an element type."""
    return lambda value, name, layer: check_dtype(value, name, names, layer)


def one_of(*choices: Any, error: type[Exception] = ValueError) -> Rule:
    """Return the check of an argument that has few values."""
    return lambda value, name, layer: check_choice(value, name, choices, layer, error)


def check_choice(
    value: Any,
    name: str,
    choices: Iterable[Any],
    layer: str,
    error: type[Exception] = ValueError,
) -> None:
    """Raise an error unless the argument is one of the choices."""
    if value not in choices:
        known = _words(map(repr, choices))
        raise error(f"{name} of {layer} must be {known}, but received {value!r}.")


def check_two_axes(layer: str, rank: int, **axes: int) -> None:
    """Raise an error unless two axes are within the rank and differ."""
    for name, axis in axes.items():
        if not -rank <= axis < rank:
            raise ArgumentError(f"{name} of {layer} must be in [{-rank}, {rank - 1}], not {axis}.")
    first, second = (axis % rank for axis in axes.values())
    if first == second:
        raise ArgumentError(f"{' and '.join(axes)} of {layer} must differ, but both are {first}.")


def _words(names: Iterable[str]) -> str:
    items = list(names)
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} or {items[-1]}"


def _join(sentence: str, extra: str) -> str:
    return f"{sentence} {extra}" if extra else sentence
