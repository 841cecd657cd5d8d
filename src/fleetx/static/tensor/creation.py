"""New tensors."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil as _ceil
from typing import Any

import numpy as np

from fleetx.exports import export_defined
from fleetx.static import layers
from fleetx.static.building.adapted import adapted
from fleetx.static.building.constants import array_constant, constant
from fleetx.static.building.one_op import one_op, shape_argument
from fleetx.static.building.spatial_variants import with_first
from fleetx.static.graph.dtypes import VarType, convert_dtype, to_numpy
from fleetx.static.graph.variable import Variable
from fleetx.static.tensor.common import or_default, unary

create_parameter = layers.create_parameter
diag_embed = layers.diag_embed
clone = adapted(
    layers.assign,
    "x -> input, name",
    name="clone",
    doc="Return a differentiable copy.",
)
tril = adapted(layers.tril, "x -> input, diagonal, name")
triu = adapted(layers.triu, "x -> input, diagonal, name")


def to_tensor(
    data: Any, dtype: Any = None, place: Any = None, stop_gradient: bool = True
) -> Variable:
    """Return a Variable with the given numbers, stored in the program as a constant."""
    if isinstance(data, Variable):
        out = data if dtype is None else layers.cast(data, dtype)
    else:
        out = array_constant(_constant(data, dtype))
    out.stop_gradient = stop_gradient
    return out


def _constant(data: Any, dtype: Any) -> np.ndarray[Any, Any]:
    array = np.asarray(data)
    if array.ndim == 0:
        array = array.reshape(1)
    if dtype is not None:
        return array.astype(to_numpy(dtype))
    if array.dtype == np.float64 and not isinstance(data, np.ndarray | np.generic):
        return array.astype(to_numpy(or_default(None)))
    return array


def assign(x: Any, output: Variable | None = None) -> Variable:
    """Return a copy of a Variable, or a Variable with the given numbers."""
    if isinstance(x, bool | int | float | list | tuple | np.generic):
        x = _constant(x, None)
    return array_constant(x, output) if isinstance(x, np.ndarray) else layers.assign(x, output)


def full(shape: Any, fill_value: Any, dtype: Any = None, name: str | None = None) -> Variable:
    """Return a tensor filled with one value."""
    if dtype is None:
        dtype = "bool" if isinstance(fill_value, bool) else or_default(None)
    return constant(_shape(shape), dtype, fill_value)


def _filled(value: float, shape: Any, dtype: Any = None, name: str | None = None) -> Variable:
    return full(shape, value, or_default(dtype))


zeros = with_first(_filled, "zeros", 0.0, doc="Return a tensor of zeros.")
ones = with_first(_filled, "ones", 1.0, doc="Return a tensor of ones.")


def _shape(shape: Any) -> Any:
    return [shape] if isinstance(shape, int) else shape


def full_like(
    x: Variable, fill_value: float, dtype: Any = None, name: str | None = None
) -> Variable:
    """Return a tensor of x's shape, filled with one value."""
    dtype = x.dtype if dtype is None else convert_dtype(dtype)
    attrs = {"value": float(fill_value), "dtype": int(dtype)}
    out = unary("fill_any_like", x, attrs, name=name, layer="full_like", dtype=dtype)
    out.stop_gradient = True
    return out


_LIKE = "x, dtype, name"
zeros_like = adapted(
    full_like, _LIKE, name="zeros_like", doc="Return zeros of x's shape.", fixed={"fill_value": 0.0}
)
ones_like = adapted(
    full_like, _LIKE, name="ones_like", doc="Return ones of x's shape.", fixed={"fill_value": 1.0}
)


def empty(shape: Any, dtype: Any = None, name: str | None = None) -> Variable:
    """Return an uninitialised tensor."""
    dtype = or_default(dtype)
    inputs: dict[str, Any] = {}
    attrs: dict[str, Any] = {"dtype": int(dtype)}
    shape_argument(_shape(shape), inputs, attrs, "empty")
    return one_op("empty", inputs, attrs, dtype=dtype, name=name, stop_gradient=True)


def empty_like(x: Variable, dtype: Any = None, name: str | None = None) -> Variable:
    """Return an uninitialised tensor of x's shape."""
    return empty(layers.shape(x), x.dtype if dtype is None else dtype, name)


def arange(
    start: Any = 0, end: Any = None, step: Any = 1, dtype: Any = None, name: str | None = None
) -> Variable:
    """Return the numbers in [start, end), `step` apart."""
    if end is None:
        start, end = 0, start
    if dtype is None:
        given = [v for v in (start, end, step) if isinstance(v, Variable | float | int)]
        whole = all(isinstance(v, int) or _is_whole(v) for v in given)
        dtype = VarType.INT64 if whole else or_default(None)
    out = layers.range(start, end, step, dtype)
    out.stop_gradient = True
    if not any(isinstance(v, Variable) for v in (start, end, step)):
        out.set_inferred((max(0, _ceil((end - start) / step)),), convert_dtype(dtype))
    return out


def _is_whole(value: Any) -> bool:
    return isinstance(value, Variable) and value.dtype in (VarType.INT32, VarType.INT64)


def linspace(
    start: Any, stop: Any, num: Any, dtype: Any = None, name: str | None = None
) -> Variable:
    """Return `num` evenly spaced numbers from `start` to `stop`, both included."""
    return layers.linspace(start, stop, num, or_default(dtype))


def eye(
    num_rows: int, num_columns: int | None = None, dtype: Any = None, name: str | None = None
) -> Variable:
    """Return a matrix with ones on the diagonal."""
    columns = num_rows if num_columns is None else num_columns
    return layers.eye(num_rows=num_rows, num_columns=columns, dtype=or_default(dtype))


def diag(
    x: Variable, offset: int = 0, padding_value: float = 0, name: str | None = None
) -> Variable:
    """Return a vector as a diagonal matrix, or a matrix's diagonal as a vector."""
    attrs = {"offset": offset, "padding_value": float(padding_value)}
    return unary("diag_v2", x, attrs, name=name, layer="diag_v2")


def diagflat(x: Variable, offset: int = 0, name: str | None = None) -> Variable:
    """Return the elements of x as a diagonal matrix."""
    flat = x if len(x.shape) == 1 else layers.reshape(x, [-1])
    return diag(flat, offset, 0, name)


def meshgrid(*args: Any, **kwargs: Any) -> list[Variable]:
    """Return the coordinates of a grid, given the coordinates along each axis."""
    axes: Sequence[Variable] = (
        args[0] if len(args) == 1 and isinstance(args[0], list | tuple) else args
    )
    return layers.meshgrid(list(axes), kwargs.get("name"))


export_defined(globals(), "create_parameter", "diag_embed")
