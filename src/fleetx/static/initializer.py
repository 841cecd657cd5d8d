"""Initializers of parameters.

Calling an initializer prepends its op to a block (of the startup program) and returns the op.
Random initializers without a seed use the program's `random_seed`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from fleetx.exports import export_defined
from fleetx.static import unique_name
from fleetx.static.building.argument_checks import check_variable_and_dtype
from fleetx.static.graph.block import Block
from fleetx.static.graph.dtypes import VarType
from fleetx.static.graph.operator import Operator
from fleetx.static.graph.variable import Variable

_FLOATS = ("float16", "bfloat16", "float32", "float64")

_force_init_on_cpu = False
_global_weight: Initializer | None = None
_global_bias: Initializer | None = None


class Initializer:
    """Base of all initializers."""

    # Prefix of the name of the float32 temporary for a low-precision variable.
    _tmp_prefix = "init"

    def __call__(self, var: Variable, block: Block) -> Operator:
        """Add the op that sets `var` to `block` and return it."""
        raise NotImplementedError(f"{type(self).__name__} must define __call__().")

    def _compute_fans(self, var: Variable) -> tuple[int, int]:
        """Return the number of inputs and outputs of a matrix or a filter [out, in, ...]."""
        shape = var.shape
        if not shape:
            return 1, 1
        if len(shape) == 1:
            return shape[0], shape[0]
        if len(shape) == 2:
            return shape[0], shape[1]
        field = math.prod(shape[2:])
        return shape[1] * field, shape[0] * field

    def _set(
        self, var: Variable, block: Block, type: str, attrs: dict[str, Any], prepend: bool = True
    ) -> Operator:
        """Add the op; half-precision variables are sampled in float32 and cast."""
        target = var
        if var.dtype == VarType.FP16:
            name = unique_name.generate(f"{self._tmp_prefix}.{var.name}.tmp")
            target = block.create_var(
                name=name, shape=var.shape, dtype=VarType.FP32, persistable=False
            )
        add = block.prepend_op if prepend else block.append_op
        op = add(
            type=type,
            outputs={"Out": target},
            attrs={"shape": list(var.shape), "dtype": int(target.dtype), **attrs},
            stop_gradient=True,
        )
        if target is not var:
            block.append_op(
                type="cast",
                inputs={"X": target},
                outputs={"Out": var},
                attrs={"in_dtype": int(target.dtype), "out_dtype": int(var.dtype)},
            )
        var.op = op
        return op


class _Seeded(Initializer):
    _seed: int

    def _seed_for(self, block: Block) -> int:
        if self._seed == 0:
            self._seed = block.program.random_seed
        return self._seed


class ConstantInitializer(Initializer):
    """Fills with one value."""

    _tmp_prefix = "constant_init"

    def __init__(self, value: float = 0.0, force_cpu: bool = False) -> None:
        if value is None:
            raise ValueError("value of Constant must be a number, not None.")
        self._value = value
        self._force_cpu = force_cpu

    def __call__(self, var: Variable, block: Block) -> Operator:
        """Add a `fill_constant` op."""
        attrs = {"value": float(self._value), "force_cpu": self._force_cpu or force_init_on_cpu()}
        return self._set(var, block, "fill_constant", attrs)


class UniformInitializer(_Seeded):
    """Samples uniformly from [low, high); sets `diag_num` diagonal elements to `diag_val`."""

    _tmp_prefix = "uniform_random"

    def __init__(
        self,
        low: float = -1.0,
        high: float = 1.0,
        seed: int = 0,
        diag_num: int = 0,
        diag_step: int = 0,
        diag_val: float = 1.0,
    ) -> None:
        if high < low:
            raise ValueError(f"high of Uniform ({high}) must not be below low ({low}).")
        if (diag_num > 0) != (diag_step > 0):
            raise ValueError("diag_num and diag_step of Uniform must be given together.")
        self._seed = seed
        self._attrs = {"min": float(low), "max": float(high), "diag_num": diag_num}
        self._attrs |= {"diag_step": diag_step, "diag_val": diag_val}

    def __call__(self, var: Variable, block: Block) -> Operator:
        """Add a `uniform_random` op."""
        check_variable_and_dtype(var, "Out", _FLOATS, "uniform_random")
        attrs = {**self._attrs, "seed": self._seed_for(block)}
        return self._set(var, block, "uniform_random", attrs)


class NormalInitializer(_Seeded):
    """Samples from a normal distribution with mean `loc` and standard deviation `scale`."""

    _op_type = _tmp_prefix = "gaussian_random"

    def __init__(self, loc: float = 0.0, scale: float = 1.0, seed: int = 0) -> None:
        self._attrs = {"mean": float(loc), "std": float(scale)}
        self._seed = seed

    def __call__(self, var: Variable, block: Block) -> Operator:
        """Add the op that samples the values."""
        check_variable_and_dtype(var, "Out", _FLOATS, self._op_type)
        attrs = {**self._attrs, "seed": self._seed_for(block)}
        return self._set(var, block, self._op_type, attrs)


class TruncatedNormalInitializer(NormalInitializer):
    """Samples from a normal distribution truncated at two standard deviations."""

    _op_type = _tmp_prefix = "truncated_gaussian_random"


class _ScaledByFan(_Seeded):
    """Uniform or normal values scaled by fan-in and fan-out."""

    _uniform: bool

    def _draw(self, var: Variable, block: Block, fan: float) -> Operator:
        seed = self._seed_for(block)
        if self._uniform:
            limit = math.sqrt(6.0 / fan)
            attrs: dict[str, Any] = {"min": -limit, "max": limit, "seed": seed}
            return self._set(var, block, "uniform_random", attrs)
        attrs = {"mean": 0.0, "std": math.sqrt(2.0 / fan), "seed": seed}
        return self._set(var, block, "gaussian_random", attrs)


class XavierInitializer(_ScaledByFan):
    """Variance 2 / (fan_in + fan_out), after Glorot and Bengio (2010)."""

    _tmp_prefix = "xavier_init"

    def __init__(
        self,
        uniform: bool = True,
        fan_in: float | None = None,
        fan_out: float | None = None,
        seed: int = 0,
    ) -> None:
        self._uniform = uniform
        self._fan_in = fan_in
        self._fan_out = fan_out
        self._seed = seed

    def __call__(self, var: Variable, block: Block) -> Operator:
        """Add the op that samples the values."""
        check_variable_and_dtype(var, "Out", _FLOATS, "xavier_init")
        fan_in, fan_out = self._compute_fans(var)
        total = (fan_in if self._fan_in is None else self._fan_in) + (
            fan_out if self._fan_out is None else self._fan_out
        )
        return self._draw(var, block, float(total))


class MSRAInitializer(_ScaledByFan):
    """Variance 2 / fan_in, for layers with ReLU, after He et al. (2015)."""

    _tmp_prefix = "masra_init"

    def __init__(self, uniform: bool = True, fan_in: float | None = None, seed: int = 0) -> None:
        self._uniform = uniform
        self._fan_in = fan_in
        self._seed = seed

    def __call__(self, var: Variable, block: Block) -> Operator:
        """Add the op that samples the values."""
        fan_in = self._compute_fans(var)[0] if self._fan_in is None else self._fan_in
        return self._draw(var, block, float(fan_in))


class BilinearInitializer(Initializer):
    """Filters with which a transposed convolution upsamples by bilinear interpolation."""

    _tmp_prefix = "bilinear_init"

    def __call__(self, var: Variable, block: Block) -> Operator:
        """Add an `assign_value` op."""
        if not isinstance(var, Variable):
            raise ValueError("var must be framework.Variable.")
        if not isinstance(block, Block):
            raise ValueError("block must be framework.Block.")
        shape = var.shape
        if len(shape) != 4:
            raise ValueError(f"Bilinear needs a parameter with 4 dimensions, not {shape}.")
        if shape[2] != shape[3]:
            raise ValueError(f"Bilinear needs a square filter, shape[2] == shape[3], not {shape}.")
        if var.dtype not in (VarType.FP32, VarType.FP16):
            raise ValueError(f"Bilinear sets float32 parameters, not {var.dtype}.")
        size = shape[3]
        factor = math.ceil(size / 2.0)
        centre = (2 * factor - 1 - factor % 2) / (2.0 * factor)
        flat = np.arange(math.prod(shape))
        # The row keeps its fraction, as in the original: i / size, not the whole number of rows.
        column, row = flat % size, (flat / size) % size
        weight = (1 - abs(column / factor - centre)) * (1 - abs(row / factor - centre))
        values = {"fp32_values": weight.astype(np.float32).tolist()}
        return self._set(var, block, "assign_value", values, prepend=False)


class NumpyArrayInitializer(Initializer):
    """The values of an array."""

    _tmp_prefix = "numpy_array_init"

    def __init__(self, value: np.ndarray) -> None:
        if not isinstance(value, np.ndarray):
            raise TypeError(
                f"NumpyArrayInitializer takes a numpy.ndarray, not {type(value).__name__}."
            )
        self._value = value

    def __call__(self, var: Variable, block: Block) -> Operator:
        """Add an `assign_value` op."""
        attrs: dict[str, Any] = {"shape": list(self._value.shape)}
        attrs |= value_attrs(self._value, VarType.FP32 if var.dtype == VarType.FP16 else var.dtype)
        return self._set(var, block, "assign_value", attrs)


def value_attrs(value: np.ndarray, dtype: VarType) -> dict[str, Any]:
    """Return the attribute of `assign_value` that holds an array of this type."""
    if dtype in (VarType.FP32, VarType.BF16):
        return {"fp32_values": value.astype(np.float32).ravel().tolist()}
    if dtype == VarType.FP64:
        return {"fp64_values": value.astype(np.float64).ravel().tolist()}
    if dtype == VarType.INT32:
        return {"int32_values": value.astype(np.int32).ravel().tolist()}
    if dtype == VarType.INT64:
        return {"int64_values": value.astype(np.int64).ravel().tolist()}
    if dtype == VarType.BOOL:
        return {"bool_values": value.astype(np.int32).ravel().tolist()}
    raise ValueError(f"an array cannot set a variable of type {dtype}; use float32 or int32.")


def set_global_initializer(weight_init: Any, bias_init: Any = None) -> None:
    """Set the initializers of parameters whose ParamAttr has none; None resets them."""
    global _global_weight, _global_bias
    for value in (weight_init, bias_init):
        if value is not None and not isinstance(value, Initializer):
            raise TypeError(
                f"an initializer must be an Initializer or None, not {type(value).__name__}."
            )
    _global_weight, _global_bias = weight_init, bias_init


def global_initializer(is_bias: bool) -> Initializer | None:
    """Return the global initializer of biases or of weights."""
    return _global_bias if is_bias else _global_weight


def force_init_on_cpu() -> bool:
    """Return whether initialization is requested on the CPU; recorded in ops, without effect."""
    return _force_init_on_cpu


@contextmanager
def init_on_cpu() -> Iterator[None]:
    """Request initialization on the CPU within the block."""
    global _force_init_on_cpu
    before, _force_init_on_cpu = _force_init_on_cpu, True
    try:
        yield
    finally:
        _force_init_on_cpu = before


Constant = ConstantInitializer
Uniform = UniformInitializer
Normal = NormalInitializer
TruncatedNormal = TruncatedNormalInitializer
Xavier = XavierInitializer
MSRA = MSRAInitializer
Bilinear = BilinearInitializer
NumpyArray = NumpyArrayInitializer


export_defined(globals(), without="global_initializer value_attrs")
