"""Attributes of tensors: shape, size, element type."""

from __future__ import annotations

from typing import Any

from fleetx.static import layers
from fleetx.static.building.argument_checks import check_type, check_variable_and_dtype
from fleetx.static.building.one_op import one_op
from fleetx.static.building.spatial_variants import with_first
from fleetx.static.graph.dtypes import VarType, is_floating
from fleetx.static.graph.variable import Variable

__all__ = ["imag", "is_complex", "is_floating_point", "is_integer", "is_tensor", "numel", "rank"]
__all__ += ["real", "shape"]

_COMPLEX = (VarType.COMPLEX64, VarType.COMPLEX128)
_INTEGERS = (VarType.UINT8, VarType.INT8, VarType.INT16, VarType.INT32, VarType.INT64)


shape = layers.shape
rank = layers.rank


def numel(x: Variable, name: str | None = None) -> Variable:
    """Return the number of elements as an int64 tensor."""
    check_type(x, "x", Variable, "numel")
    return layers.size(x)


def _part(part: str, x: Variable, name: str | None = None) -> Variable:
    check_variable_and_dtype(x, "x", ["complex64", "complex128"], part)
    dtype = VarType.FP32 if x.dtype == VarType.COMPLEX64 else VarType.FP64
    return one_op(part, {"X": x}, None, dtype=dtype, name=name)


real = with_first(_part, "real", "real", doc="Return the real parts of complex numbers.")
imag = with_first(_part, "imag", "imag", doc="Return the imaginary parts of complex numbers.")


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
