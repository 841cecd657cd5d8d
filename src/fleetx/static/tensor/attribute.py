"""Attributes of tensors: shape, size, kind of elements."""

from __future__ import annotations

from typing import Any

from fleetx.static import layers
from fleetx.static.building.argument_checks import check_type
from fleetx.static.graph.dtypes import VarType, is_floating
from fleetx.static.graph.variable import Variable

__all__ = ["is_complex", "is_floating_point", "is_integer", "is_tensor", "numel", "rank", "shape"]

_COMPLEX = (VarType.COMPLEX64, VarType.COMPLEX128)
_INTEGERS = (VarType.UINT8, VarType.INT8, VarType.INT16, VarType.INT32, VarType.INT64)


shape = layers.shape
rank = layers.rank


def numel(x: Variable, name: str | None = None) -> Variable:
    """Return the number of elements as an int64 tensor."""
    check_type(x, "x", Variable, "numel")
    return layers.size(x)


def is_tensor(x: Any) -> bool:
    """Return whether a value is a Variable."""
    return isinstance(x, Variable)


def is_complex(x: Variable) -> bool:
    """Return whether the elements are complex."""
    check_type(x, "x", Variable, "is_complex")
    return x.dtype in _COMPLEX


def is_floating_point(x: Variable) -> bool:
    """Return whether the elements are floating-point numbers."""
    check_type(x, "x", Variable, "is_floating_point")
    return is_floating(x.dtype) and x.dtype not in _COMPLEX


def is_integer(x: Variable) -> bool:
    """Return whether the elements are integers."""
    check_type(x, "x", Variable, "is_integer")
    return x.dtype in _INTEGERS
