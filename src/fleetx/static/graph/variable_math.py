"""Operators of Variables: `a + b`, `1 / a`, `a > 0`, `a[1:, -1]` append ops to the current block.

`install` adds them to the class. A number on the right of + - * / becomes one `scale` op; with
other operators it becomes a constant. Where the types differ, the other operand is cast.
"""

from __future__ import annotations

import numbers
from collections.abc import Callable
from typing import Any

import numpy as np

from fleetx.static import unique_name
from fleetx.static.errors import ArgumentError
from fleetx.static.graph.block import Block
from fleetx.static.graph.dtypes import VarType, convert_dtype, is_floating
from fleetx.static.graph.variable import Variable
from fleetx.static.graph.variable_index import append, get_item

Scaling = Callable[[float], tuple[float, float]]
"""Returns the scale and bias that an operation with a number stands for."""


def _block(var: Variable) -> Block:
    return var.block.program.current_block()


def _new(block: Block, dtype: Any) -> Variable:
    return block.create_var(name=unique_name.generate("tmp"), dtype=dtype)


def _scaled(var: Variable, scale: float, bias: float) -> Variable:
    block = _block(var)
    attrs = {"scale": float(scale), "bias": float(bias)}
    return append(block, "scale", {"X": [var]}, _new(block, var.dtype), attrs)


def _cast(var: Variable, dtype: Any) -> Variable:
    """Return the variable with another element type, named `tmp_N`."""
    block = _block(var)
    attrs = {"in_dtype": int(var.dtype), "out_dtype": int(convert_dtype(dtype))}
    return append(block, "cast", {"X": [var]}, _new(block, dtype), attrs)


def _constant(like: Variable, value: Any, full: bool) -> Variable:
    """Return a number as a tensor of one element, or (`full`) in the shape of `like`."""
    block = _block(like)
    out = _new(block, like.dtype)
    attrs = {"dtype": int(like.dtype), "value": float(value)}
    if full and any(d < 0 for d in like.shape):
        batch = next(i for i, d in enumerate(like.shape) if d < 0)
        # Only one dimension can be taken from `like`; further unknown ones are broadcast.
        shape = [d if d >= 0 or i == batch else 1 for i, d in enumerate(like.shape)]
        block.append_op(
            type="fill_constant_batch_size_like",
            inputs={"Input": [like]},
            outputs={"Out": [out]},
            attrs={**attrs, "shape": shape, "input_dim_idx": batch, "output_dim_idx": batch},
            stop_gradient=True,
        )
    else:
        shape = list(like.shape) if full else [1]
        block.append_op(
            type="fill_constant",
            outputs={"Out": [out]},
            attrs={**attrs, "shape": shape, "force_cpu": False},
            stop_gradient=True,
        )
    out.stop_gradient = True
    return out


def _operand(var: Variable, other: Any, reverse: bool) -> Variable:
    """Return the other operand as a Variable of the same type."""
    if isinstance(other, np.ndarray) and other.size != 1:
        from fleetx.static.layers import assign

        other = assign(other.astype(np.float32) if other.dtype == np.float64 else other)
    if not isinstance(other, Variable):
        return _constant(var, other, full=reverse)
    return other if other.dtype == var.dtype else _cast(other, var.dtype)


def _is_number(value: Any) -> bool:
    return isinstance(value, numbers.Real | np.number | np.bool_)


def _check_whole(var: Variable, value: Any) -> None:
    if not is_floating(var.dtype) and float(value) != int(value):
        raise ArgumentError(
            f"{value} is not a whole number, but {var.name!r} has type {var.dtype}; "
            "cast it to float32 first."
        )


def _binary(
    method: str,
    op_type: str,
    reverse: bool = False,
    scaling: Scaling | None = None,
    result: VarType | None = None,
) -> Callable[[Variable, Any], Any]:
    def operator(self: Variable, other: Any) -> Any:
        if not isinstance(other, Variable | np.ndarray) and not _is_number(other):
            return NotImplemented
        # Dividing whole numbers by a scaled reciprocal would lose digits.
        whole_division = op_type == "elementwise_div" and not is_floating(self.dtype)
        if scaling is not None and _is_number(other) and not whole_division:
            _check_whole(self, other)
            return _scaled(self, *scaling(float(other)))
        right = _operand(self, other, reverse)
        left = self
        if reverse:
            left, right = right, left
        block = _block(self)
        out = _new(block, self.dtype if result is None else result)
        # A batch on the right is aligned with the first dimensions of the left operand.
        batch = right.shape[:1] == (-1,) and len(left.shape) >= len(right.shape)
        inputs = {"X": [left], "Y": [right]}
        return append(block, op_type, inputs, out, {"axis": 0 if batch else -1})

    operator.__name__ = method
    operator.__doc__ = f"Append `{op_type}`."
    return operator


def _logical(method: str, op_type: str) -> Callable[[Variable, Any], Any]:
    def operator(self: Variable, other: Any) -> Any:
        if not isinstance(other, Variable):
            return NotImplemented
        block = _block(self)
        kind = "logical" if self.dtype == VarType.BOOL else "bitwise"
        inputs = {"X": [self], "Y": [other]}
        return append(block, f"{kind}_{op_type}", inputs, _new(block, self.dtype))

    operator.__name__ = method
    operator.__doc__ = f"Append `logical_{op_type}`, or `bitwise_{op_type}` for whole numbers."
    return operator


def _negate(self: Variable) -> Variable:
    """Append `scale` by -1."""
    return _scaled(self, -1.0, 0.0)


def _invert(self: Variable) -> Variable:
    """Append `logical_not`, or `bitwise_not` for whole numbers."""
    block = _block(self)
    kind = "logical_not" if self.dtype == VarType.BOOL else "bitwise_not"
    return append(block, kind, {"X": [self]}, _new(block, self.dtype))


def _matmul(self: Variable, other: Any) -> Any:
    """Append `matmul`."""
    from fleetx.static.layers import matmul

    return matmul(self, other) if isinstance(other, Variable) else NotImplemented


def install(cls: type[Variable]) -> None:
    """Add the operators to a class of Variables."""

    # By name: the op, and the scale and bias that do the same with a number on the right or left.
    table: dict[str, tuple[str, Scaling | None, Scaling | None]] = {
        "add": ("elementwise_add", lambda n: (1.0, n), lambda n: (1.0, n)),
        "sub": ("elementwise_sub", lambda n: (1.0, -n), lambda n: (-1.0, n)),
        "mul": ("elementwise_mul", lambda n: (n, 0.0), lambda n: (n, 0.0)),
        "div": ("elementwise_div", lambda n: (1.0 / n, 0.0), None),
        "truediv": ("elementwise_div", lambda n: (1.0 / n, 0.0), None),
        "pow": ("elementwise_pow", None, None),
        "floordiv": ("elementwise_floordiv", None, None),
        "mod": ("elementwise_mod", None, None),
    }
    for name, (op_type, right, left) in table.items():
        swaps = name not in ("add", "mul")
        setattr(cls, f"__{name}__", _binary(f"__{name}__", op_type, False, right))
        setattr(cls, f"__r{name}__", _binary(f"__r{name}__", op_type, swaps, left))
    for method, op_type in (
        ("__eq__", "equal"),
        ("__ne__", "not_equal"),
        ("__lt__", "less_than"),
        ("__le__", "less_equal"),
        ("__gt__", "greater_than"),
        ("__ge__", "greater_equal"),
    ):
        setattr(cls, method, _binary(method, op_type, result=VarType.BOOL))
    for method, op_type in (("__and__", "and"), ("__or__", "or"), ("__xor__", "xor")):
        setattr(cls, method, _logical(method, op_type))
    others: dict[str, Any] = {
        "__neg__": _negate,
        "__invert__": _invert,
        "__matmul__": _matmul,
        "__getitem__": get_item,
        # Without this, `for x in variable` would never end.
        "__iter__": None,
        "__hash__": object.__hash__,
        "astype": _cast,
    }
    for method, function in others.items():
        setattr(cls, method, function)
