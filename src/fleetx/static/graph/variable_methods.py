"""Methods of Variables in the style of Paddle 2: `x.reshape([...])` is `tensor.reshape(x, [...])`.

Only the names are listed here; `fleetx.static.tensor` is imported on the first call.
"""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np

from fleetx.static import unique_name
from fleetx.static.graph.variable import Variable
from fleetx.static.run.scope import Scope, ScopeTensor, global_scope

METHODS = (
    *("abs", "acos", "acosh", "add", "addmm", "all", "allclose", "amax", "amin", "any"),
    *("argmax", "argmin", "argsort", "asin", "asinh", "atan", "atanh", "bitwise_and"),
    *("bitwise_not", "bitwise_or", "bitwise_xor", "bmm", "broadcast_to", "cast", "ceil"),
    *("cholesky", "chunk", "clip", "clone", "cos", "cosh", "cross", "cumprod", "cumsum"),
    *("diagonal", "digamma", "dist", "divide", "dot", "equal", "equal_all", "erf", "exp"),
    *("expand", "expand_as", "expm1", "flatten", "flip", "floor", "floor_divide", "fmax"),
    *("fmin", "gather", "gather_nd", "greater_equal", "greater_than", "histogram"),
    *("index_sample", "index_select", "inner", "inverse", "is_empty", "isclose", "isfinite"),
    *("isinf", "isnan", "kron", "kthvalue", "lerp", "less_equal", "less_than", "lgamma"),
    *("log", "log10", "log1p", "log2", "logcumsumexp", "logical_and", "logical_not"),
    *("logical_or", "logical_xor", "logsumexp", "masked_select", "matmul", "matrix_power"),
    *("max", "maximum", "mean", "median", "min", "minimum", "mm", "mod", "moveaxis"),
    *("multiply", "mv", "neg", "nonzero", "norm", "not_equal", "numel", "outer", "pow", "prod"),
    *("put_along_axis", "rank", "reciprocal", "remainder", "reshape", "roll", "round", "rsqrt"),
    *("scale", "scatter", "scatter_nd_add", "sign", "sin", "sinh", "slice", "sort", "split"),
    *("sqrt", "square", "squeeze", "std", "strided_slice", "subtract", "sum", "t"),
    *("take_along_axis", "tan", "tanh", "tile", "topk", "trace", "transpose", "tril", "triu"),
    *("trunc", "unbind", "unique", "unsqueeze", "unstack", "var"),
)


def _method(name: str) -> Any:
    def method(self: Variable, *args: Any, **kwargs: Any) -> Any:
        function = getattr(importlib.import_module("fleetx.static.tensor"), name)
        return function(self, *args, **kwargs)

    method.__name__ = name
    method.__doc__ = f"Call `fleetx.static.tensor.{name}` with this variable first."
    return method


def _transposed(self: Variable) -> Variable:
    """The variable with its dimensions in reverse order."""
    from fleetx.static.layers import transpose

    return self if self.ndim < 2 else transpose(self, list(range(self.ndim))[::-1])


def _detach(self: Variable) -> Variable:
    """Return the same value as a variable without gradient."""
    block = self.block.program.current_block()
    name = unique_name.generate(f"{self.name}.detach")
    out = block.create_var(name=name, dtype=self.dtype, stop_gradient=True)
    block.append_op(type="share_data", inputs={"X": [self]}, outputs={"Out": [out]})
    return out


def _get_value(self: Variable, scope: Scope | None = None) -> ScopeTensor:
    """Return the tensor that a scope holds for this variable."""
    found = (scope or global_scope()).find_var(self.name)
    if found is None:
        raise ValueError(f"variable {self.name!r} has no value: run the startup program first.")
    return found.get_tensor()


def _set_value(self: Variable, value: Any, scope: Scope | None = None) -> None:
    """Replace the value that a scope holds for this variable."""
    tensor = _get_value(self, scope)
    array = np.asarray(value)
    if tuple(array.shape) != tuple(tensor.shape()):
        raise ValueError(
            f"variable {self.name!r} has shape {tuple(tensor.shape())}, but the new value has "
            f"shape {array.shape}."
        )
    tensor.set(array.astype(np.asarray(tensor).dtype))


def install(cls: type[Variable]) -> None:
    """Add the methods to a class of Variables."""
    for name in METHODS:
        setattr(cls, name, _method(name))
    others: dict[str, Any] = {
        "T": property(_transposed),
        "detach": _detach,
        "get_value": _get_value,
        "set_value": _set_value,
        "ndimension": cls.dim,
    }
    for name, value in others.items():
        setattr(cls, name, value)
