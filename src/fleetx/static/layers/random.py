"""Layers that return random numbers."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from fleetx.exports import export_defined
from fleetx.static.building.argument_checks import (
    as_dtype,
    check_choice,
    check_dtype,
    check_type,
    check_variable_and_dtype,
)
from fleetx.static.building.layer_helper import LayerHelper
from fleetx.static.building.one_op import (
    FLOATS,
    INTS,
    WIDE,
    mixed_argument,
    one_op,
    shape_argument,
)
from fleetx.static.building.op_layer import checked, op_layer
from fleetx.static.errors import ArgumentError
from fleetx.static.graph.default_programs import device_guard
from fleetx.static.graph.dtypes import convert_dtype, dtype_name
from fleetx.static.graph.variable import Variable

_FLOATING = as_dtype(*FLOATS)
# The slots of a shape that is a Variable, or a list with Variables in it.
_SHAPE = {
    "attr": "shape",
    "whole": "ShapeTensor",
    "parts": "ShapeTensorList",
    "dtype": "int64",
}


def _check_positive(shape: Any, name: str, layer: str) -> None:
    check_type(shape, name, (list, tuple, Variable), layer)
    if isinstance(shape, Variable):
        return
    if len(shape) == 0:
        raise ArgumentError(f"{name} of {layer} must not be empty.")
    for d in shape:
        if not isinstance(d, Variable) and d <= 0:
            raise ArgumentError(f"{name} of {layer} must hold positive sizes, not {d}.")


@checked(shape=_check_positive, dtype=_FLOATING)
def uniform_random(
    shape: Any,
    dtype: Any = "float32",
    min: float = -1.0,
    max: float = 1.0,
    seed: int = 0,
    name: str | None = None,
) -> Variable:
    """Sample uniformly from [min, max); the shape may be, or hold, Variables."""
    helper = LayerHelper("uniform_random", name=name)
    inputs: dict[str, Any] = {}
    attrs = {"min": float(min), "max": float(max), "seed": seed}
    attrs["dtype"] = int(convert_dtype(dtype))
    mixed_argument(helper, shape, inputs=inputs, attrs=attrs, **_SHAPE)
    return helper.output_of("uniform_random", inputs, attrs, dtype=dtype)


@checked(shape=list | tuple | Variable, dtype=_FLOATING)
def gaussian_random(
    shape: Any,
    mean: float = 0.0,
    std: float = 1.0,
    seed: int = 0,
    dtype: Any = "float32",
    name: str | None = None,
) -> Variable:
    """Sample from a normal distribution; the shape may be, or hold, Variables."""
    inputs: dict[str, Any] = {}
    attrs = {"mean": float(mean), "std": float(std), "seed": seed}
    attrs["dtype"] = int(convert_dtype(dtype))
    shape_argument(shape, inputs, attrs, "gaussian_random")
    return one_op("gaussian_random", inputs, attrs, dtype=dtype, name=name)


# A layer that returns samples with the batch size of `input`.
_like = functools.partial(
    op_layer,
    "input",
    element_type="dtype",
    attrs={"dtype": "dtype"},
    input=Variable,
    shape=list | tuple,
    dtype=_FLOATING,
)


@_like()
def uniform_random_batch_size_like(
    input: Variable,
    shape: Sequence[int],
    dtype: Any = "float32",
    input_dim_idx: int = 0,
    output_dim_idx: int = 0,
    min: float = -1.0,
    max: float = 1.0,
    seed: int = 0,
) -> Variable:
    """Sample from a uniform distribution, with the batch size of `input`."""


@_like()
def gaussian_random_batch_size_like(
    input: Variable,
    shape: Sequence[int],
    input_dim_idx: int = 0,
    output_dim_idx: int = 0,
    mean: float = 0.0,
    std: float = 1.0,
    seed: int = 0,
    dtype: Any = "float32",
) -> Variable:
    """Sample from a normal distribution, with the batch size of `input`."""


@op_layer("x", element_type="dtype", x=FLOATS)
def sampling_id(
    x: Variable, min: float = 0.0, max: float = 1.0, seed: int = 0, dtype: Any = "float32"
) -> Variable:
    """Return a column index per row, sampled with the row's probabilities."""


def randint(
    low: int,
    high: int | None = None,
    shape: Any = None,
    out: Variable | None = None,
    dtype: Any = None,
    device: str | None = None,
    stop_gradient: bool = False,
    seed: int = 0,
    name: str | None = None,
) -> Variable:
    """Return random integers in [low, high), or in [0, low) if `high` is None."""
    dtype = "int64" if dtype is None else dtype
    check_dtype(dtype, "dtype", INTS, "randint")
    shape = [1] if shape is None else shape
    _check_positive(shape, "shape", "randint")
    low, high = (0, low) if high is None else (low, high)
    if low >= high:
        raise ValueError(f"low of randint ({low}) must be less than high ({high}).")
    helper = LayerHelper("randint", name=name)
    inputs: dict[str, Any] = {}
    attrs: dict[str, Any] = {"low": low, "high": high, "seed": seed}
    mixed_argument(helper, shape, inputs=inputs, attrs=attrs, **_SHAPE)
    if out is not None:
        check_dtype(dtype, "dtype", dtype_name(out.dtype), "randint")
    else:
        out = helper.create_named(name, dtype)
    attrs["dtype"] = int(out.dtype)
    with device_guard(device):
        helper.append_op(type="randint", inputs=inputs, outputs={"Out": out}, attrs=attrs)
    out.stop_gradient = stop_gradient
    return out


def randn(
    shape: Sequence[int],
    out: Variable | None = None,
    dtype: Any = None,
    device: str | None = None,
    stop_gradient: bool = True,
    name: str | None = None,
) -> Variable:
    """Sample from the standard normal distribution; the seed is drawn once, so all runs agree."""
    check_type(shape, "shape", (list, tuple), "randn")
    if len(shape) == 0:
        raise ArgumentError("shape of randn must not be empty.")
    dtype = "float32" if dtype is None else dtype
    check_dtype(dtype, "create data type", WIDE, "randn")
    if out is not None:
        check_variable_and_dtype(out, "out", (dtype_name(dtype),), "randn")
    attrs = {"shape": list(shape), "mean": 0.0, "std": 1.0, "dtype": int(convert_dtype(dtype))}
    attrs["seed"] = int(np.random.randint(0, 100))
    with device_guard(device):
        result = one_op(
            "gaussian_random", {}, attrs, dtype=dtype, layer="randn", name=name, out=out
        )
    result.stop_gradient = stop_gradient
    return result


def randperm(
    n: int,
    out: Variable | None = None,
    dtype: Any = "int64",
    device: str | None = None,
    stop_gradient: bool = True,
    seed: int = 0,
) -> Variable:
    """Return a random permutation of 0 to n - 1."""
    if n < 1:
        raise ValueError(f"n of randperm must be greater than 0, not {n}.")
    check_dtype(dtype, "dtype", INTS, "randperm")
    check_choice(device, "device", (None, "cpu", "gpu"), "randperm")
    check_type(stop_gradient, "stop_gradient", bool, "randperm")
    if out is not None:
        check_variable_and_dtype(out, "out", (dtype_name(dtype),), "randperm")
    attrs = {"n": n, "dtype": int(convert_dtype(dtype)), "seed": seed}
    with device_guard(device):
        result = one_op("randperm", {}, attrs, dtype=dtype, out=out)
    result.stop_gradient = stop_gradient
    return result


@op_layer("x", no_grad="Out", x=FLOATS)
def bernoulli(x: Variable, name: str | None = None) -> Variable:
    """Return 1 with probability x, else 0."""


export_defined(globals())
