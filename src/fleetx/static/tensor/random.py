"""Random tensors; new values in every run of the program."""

from __future__ import annotations

from typing import Any

from fleetx.exports import export_defined
from fleetx.static import layers
from fleetx.static.building.one_op import one_op, shape_argument
from fleetx.static.building.op_layer import op_layer
from fleetx.static.graph.dtypes import convert_dtype
from fleetx.static.graph.variable import Variable
from fleetx.static.tensor.common import or_default

bernoulli = layers.bernoulli


def _draw(op_type: str, shape: Any, dtype: Any, attrs: dict[str, Any], name: Any) -> Variable:
    inputs: dict[str, Any] = {}
    attrs = {**attrs, "dtype": int(convert_dtype(dtype))}
    shape_argument([shape] if isinstance(shape, int) else shape, inputs, attrs, op_type)
    return one_op(op_type, inputs, attrs, dtype=dtype, name=name, stop_gradient=True)


def uniform(
    shape: Any,
    dtype: Any = None,
    min: float = -1.0,
    max: float = 1.0,
    seed: int = 0,
    name: str | None = None,
) -> Variable:
    """Sample uniformly from [min, max)."""
    attrs = {"min": float(min), "max": float(max), "seed": seed}
    return _draw("uniform_random", shape, or_default(dtype), attrs, name)


def rand(shape: Any, dtype: Any = None, name: str | None = None) -> Variable:
    """Sample uniformly from [0, 1)."""
    return uniform(shape, dtype, 0.0, 1.0, name=name)


def standard_normal(shape: Any, dtype: Any = None, name: str | None = None) -> Variable:
    """Sample from the standard normal distribution."""
    attrs = {"mean": 0.0, "std": 1.0, "seed": 0}
    return _draw("gaussian_random", shape, or_default(dtype), attrs, name)


def randn(shape: Any, dtype: Any = None, name: str | None = None) -> Variable:
    """Sample from the standard normal distribution."""
    return standard_normal(shape, dtype, name)


def normal(mean: Any = 0.0, std: Any = 1.0, shape: Any = None, name: str | None = None) -> Variable:
    """Sample from a normal distribution; mean and standard deviation may be tensors."""
    given = [v for v in (mean, std) if isinstance(v, Variable)]
    if not given:
        if shape is None:
            raise ValueError("normal needs a shape if mean and std are numbers.")
        attrs = {"mean": float(mean), "std": float(std), "seed": 0}
        return _draw("gaussian_random", shape, or_default(None), attrs, name)
    noise = standard_normal(layers.shape(given[0]), given[0].dtype)
    scaled = noise * std if isinstance(std, Variable) else layers.scale(noise, float(std))
    if isinstance(mean, Variable):
        return layers.elementwise_add(scaled, mean, name=name)
    return layers.scale(scaled, bias=float(mean), name=name)


def randint(
    low: int = 0, high: int | None = None, shape: Any = (1,), dtype: Any = None, name: Any = None
) -> Variable:
    """Return random integers in [low, high), or in [0, low) if `high` is None."""
    if high is None:
        low, high = 0, low
    if not low < high:
        raise ValueError(f"randint needs low < high, but got low={low} and high={high}.")
    attrs = {"low": low, "high": high, "seed": 0}
    shape = list(shape) if isinstance(shape, tuple) else shape
    return _draw("randint", shape, "int64" if dtype is None else dtype, attrs, name)


def randint_like(
    x: Variable, low: int = 0, high: int | None = None, dtype: Any = None, name: Any = None
) -> Variable:
    """Return random integers as `randint` does, in x's shape and, by default, its type."""
    numbers = randint(low, high, layers.shape(x), "int64", name)
    return layers.cast(numbers, x.dtype if dtype is None else dtype)


def randperm(n: int, dtype: Any = "int64", name: str | None = None) -> Variable:
    """Return a random permutation of 0 to n - 1."""
    attrs = {"n": n, "dtype": int(convert_dtype(dtype)), "seed": 0}
    return one_op("randperm", {}, attrs, dtype=dtype, name=name, stop_gradient=True)


@op_layer("x", element_type="int64", x=Variable)
def multinomial(
    x: Variable, num_samples: int = 1, replacement: bool = False, name: str | None = None
) -> Variable:
    """Return indices sampled with the probabilities in each row."""


export_defined(globals(), "bernoulli")
