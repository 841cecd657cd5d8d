"""Pooling layers."""

from __future__ import annotations

from typing import Any

from fleetx.static.building.argument_checks import check_type, check_variable_and_dtype
from fleetx.static.building.layer_helper import LayerHelper
from fleetx.static.building.spatial_variants import LAYOUTS, of_axes
from fleetx.static.graph.variable import Variable
from fleetx.static.layers.window_args import (
    check_choice,
    check_use_cudnn,
    convert_to_list,
    resolve_padding,
)

__all__ = ["adaptive_pool2d", "adaptive_pool3d", "pool2d", "pool3d"]


def _pool(
    n: int,
    input: Variable,
    pool_size: Any = -1,
    pool_type: str = "max",
    pool_stride: Any = 1,
    pool_padding: Any = 0,
    global_pooling: bool = False,
    use_cudnn: bool = True,
    ceil_mode: bool = False,
    name: str | None = None,
    exclusive: bool = True,
    data_format: str = "NCHW",
) -> Variable:
    """Max or average pooling of images; `exclusive` excludes padding from averages."""
    layer = f"pool{n}d"
    check_choice(pool_type, "pool_type", ("max", "avg"), layer)
    if global_pooling is False and pool_size == -1:
        raise ValueError(
            f"pool_size of {layer} must be given unless global_pooling is True, but is {pool_size}."
        )
    check_use_cudnn(use_cudnn, layer, TypeError)
    check_choice(data_format, "data_format", LAYOUTS[n], layer)
    pool_size = convert_to_list(pool_size, n, "pool_size")
    pool_stride = convert_to_list(pool_stride, n, "pool_stride")
    padding, algorithm = resolve_padding(pool_padding, n, data_format.endswith("C"), layer)
    if algorithm == "VALID" and ceil_mode:
        raise ValueError(f"ceil_mode of {layer} must be False where pool_padding is 'VALID'.")
    helper = LayerHelper(layer, input=input, name=name)
    return helper.output_of(
        layer,
        {"X": input},
        {
            "pooling_type": pool_type,
            "ksize": pool_size,
            "global_pooling": global_pooling,
            "strides": pool_stride,
            "paddings": padding,
            "padding_algorithm": algorithm,
            "use_cudnn": use_cudnn,
            "ceil_mode": ceil_mode,
            "exclusive": exclusive,
            "data_format": data_format,
        },
        dtype=helper.input_dtype(),
    )


def _adaptive(
    n: int,
    input: Variable,
    pool_size: Any,
    pool_type: str = "max",
    require_index: bool = False,
    name: str | None = None,
) -> Any:
    """Pool images to a given size; with `require_index`, also return the indices of the maxima."""
    layer = f"adaptive_pool{n}d"
    allowed = ["float16", "float32", "float64", "int32", "int64"]
    check_variable_and_dtype(input, "input", allowed, layer)
    check_type(pool_type, "pool_type", str, layer)
    check_type(pool_size, "pool_size", (int, list, tuple), layer)
    check_type(require_index, "require_index", bool, layer)
    check_choice(pool_type, "pool_type", ("max", "avg"), layer)
    if pool_type == "avg" and require_index:
        raise ValueError(f"require_index of {layer} needs pool_type 'max': a mean has no index.")
    pool_size = convert_to_list(pool_size, n, "pool_size")
    op_type = f"max_pool{n}d_with_index" if pool_type == "max" else f"pool{n}d"
    helper = LayerHelper(op_type, name=name)
    attrs = {"ksize": pool_size, "adaptive": True}
    if pool_type == "avg":
        attrs["pooling_type"] = pool_type
        return helper.output_of(op_type, {"X": input}, attrs, dtype=input.dtype)
    out, mask = helper.outputs_of(op_type, {"X": input}, attrs, Out=input.dtype, Mask=input.dtype)
    return (out, mask) if require_index else out


pool2d = of_axes(_pool, "pool2d", 2)
pool3d = of_axes(_pool, "pool3d", 3)
adaptive_pool2d = of_axes(_adaptive, "adaptive_pool2d", 2)
adaptive_pool3d = of_axes(_adaptive, "adaptive_pool3d", 3)
