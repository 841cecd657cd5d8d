"""Pooling of signals, images and volumes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from fleetx.exports import export_defined
from fleetx.static.building.layer_helper import LayerHelper
from fleetx.static.building.one_op import one_op
from fleetx.static.building.spatial_variants import LAYOUTS, of_axes
from fleetx.static.graph.variable import Variable
from fleetx.static.layers.math import scale
from fleetx.static.layers.pool import pool2d, pool3d
from fleetx.static.layers.tensor import squeeze, unsqueeze
from fleetx.static.layers.window_args import check_choice, convert_to_list, resolve_padding


def _windows(n: int, kernel_size: Any, stride: Any) -> tuple[list[int], list[int]]:
    kernel = convert_to_list(kernel_size, n, "kernel_size")
    return kernel, kernel if stride is None else convert_to_list(stride, n, "stride")


def _pool(
    n: int,
    kind: str,
    x: Variable,
    kernel_size: Any,
    stride: Any,
    padding: Any,
    ceil_mode: bool,
    exclusive: bool,
    data_format: str,
) -> Variable:
    layer = f"{kind}_pool{n}d"
    check_choice(data_format, "data_format", LAYOUTS[n], layer)
    kernel, steps = _windows(n, kernel_size, stride)
    _, algorithm = resolve_padding(padding, n, data_format.endswith("C"), layer)
    if ceil_mode and algorithm == "VALID":
        raise ValueError(f"ceil_mode of {layer} must be False where padding is 'VALID'.")
    pool = pool2d if n == 2 else pool3d
    everywhere: Any = {"ceil_mode": ceil_mode, "exclusive": exclusive, "data_format": data_format}
    return pool(x, kernel, kind, steps, padding, **everywhere)


def _with_mask(n: int, x: Variable, attrs: dict[str, Any]) -> tuple[Variable, Variable]:
    helper = LayerHelper(f"max_pool{n}d_with_index")
    out, mask = helper.outputs_of(
        f"max_pool{n}d_with_index", {"X": x}, attrs, Out=x.dtype, Mask="int32"
    )
    return out, mask


def _max_pool(
    n: int,
    x: Variable,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    return_mask: bool = False,
    ceil_mode: bool = False,
    data_format: str = "NCHW",
    name: str | None = None,
) -> Any:
    """Apply max pooling to images; with `return_mask`, also return the indices."""
    if not return_mask:
        return _pool(n, "max", x, kernel_size, stride, padding, ceil_mode, True, data_format)
    if data_format.endswith("C"):
        raise ValueError(f"return_mask of max_pool{n}d needs the channels in dimension 1.")
    kernel, steps = _windows(n, kernel_size, stride)
    paddings, _ = resolve_padding(padding, n, False, f"max_pool{n}d")
    return _with_mask(n, x, {"ksize": kernel, "strides": steps, "paddings": paddings})


def _divided(out: Variable, kernel_size: Any, n: int, divisor_override: float | None) -> Variable:
    """Divide by `divisor_override` instead of the window's number of elements."""
    if divisor_override is None:
        return out
    count = math.prod(convert_to_list(kernel_size, n, "kernel_size"))
    return scale(out, count / divisor_override)


def _avg_pool(
    n: int,
    x: Variable,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    exclusive: bool = True,
    divisor_override: float | None = None,
    data_format: str = "NCHW",
    name: str | None = None,
) -> Variable:
    """Apply average pooling to images; `exclusive` excludes padding from the mean."""
    out = _pool(n, "avg", x, kernel_size, stride, padding, ceil_mode, exclusive, data_format)
    return _divided(out, kernel_size, n, divisor_override)


def _signal_padding(padding: Any) -> Any:
    """Return a signal's padding for images of height one."""
    if isinstance(padding, str):
        return padding
    flat = [padding] if isinstance(padding, int) else list(padding)
    return [0, 0, *(flat * 2 if len(flat) == 1 else flat)]


def _pooled_signals(
    pool: Callable[..., Any], x: Variable, kernel_size: Any, stride: Any, padding: Any, *more: Any
) -> Any:
    """Pool signals as images of height one."""
    kernel, steps = _windows(1, kernel_size, stride)
    image = unsqueeze(x, [2])
    return _as_signals(pool(2, image, [1, *kernel], [1, *steps], _signal_padding(padding), *more))


def _as_signals(images: Any) -> Any:
    """Return images of height one, or the images and their mask, as signals."""
    if isinstance(images, tuple):
        return tuple(squeeze(image, [2]) for image in images)
    return squeeze(images, [2])


def max_pool1d(
    x: Variable,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    return_mask: bool = False,
    ceil_mode: bool = False,
    name: str | None = None,
) -> Any:
    """Apply max pooling to signals [N, C, L]; with `return_mask`, also return the indices."""
    return _pooled_signals(_max_pool, x, kernel_size, stride, padding, return_mask, ceil_mode)


def avg_pool1d(
    x: Variable,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    exclusive: bool = True,
    ceil_mode: bool = False,
    name: str | None = None,
) -> Variable:
    """Apply average pooling to signals [N, C, L]; `exclusive` excludes padding."""
    return _pooled_signals(_avg_pool, x, kernel_size, stride, padding, ceil_mode, exclusive)


def _adaptive_size(x: Variable, output_size: Any, n: int, last: bool) -> list[int]:
    """Return the output size; None keeps the input's."""
    have = x.shape[1:-1] if last else x.shape[2:]
    sizes = [output_size] * n if isinstance(output_size, int | None) else list(output_size)
    if len(sizes) != n:
        raise ValueError(f"output_size must be a number or {n} of them, but is {output_size!r}.")
    return [have[i] if size is None else int(size) for i, size in enumerate(sizes)]


def _adaptive_avg(
    n: int, x: Variable, output_size: Any, data_format: str = "NCHW", name: str | None = None
) -> Variable:
    """Average images to a given output size; None keeps a dimension."""
    check_choice(data_format, "data_format", LAYOUTS[n], f"adaptive_avg_pool{n}d")
    attrs = {
        "pooling_type": "avg",
        "ksize": _adaptive_size(x, output_size, n, data_format.endswith("C")),
        "adaptive": True,
        "data_format": data_format,
    }
    return one_op(f"pool{n}d", {"X": x}, attrs, dtype=x.dtype)


def _adaptive_max(
    n: int, x: Variable, output_size: Any, return_mask: bool = False, name: str | None = None
) -> Any:
    """Max-pool images to a given output size; None keeps a dimension."""
    size = _adaptive_size(x, output_size, n, False)
    out, mask = _with_mask(n, x, {"ksize": size, "adaptive": True})
    return (out, mask) if return_mask else out


def adaptive_avg_pool1d(x: Variable, output_size: Any, name: str | None = None) -> Variable:
    """Average signals [N, C, L] to a given length."""
    length = convert_to_list(output_size, 1, "output_size")
    return _as_signals(_adaptive_avg(2, unsqueeze(x, [2]), [1, *length]))


def adaptive_max_pool1d(
    x: Variable, output_size: Any, return_mask: bool = False, name: str | None = None
) -> Any:
    """Max-pool signals [N, C, L] to a given length."""
    length = convert_to_list(output_size, 1, "output_size")
    return _as_signals(_adaptive_max(2, unsqueeze(x, [2]), [1, *length], return_mask))


avg_pool2d = of_axes(_avg_pool, "avg_pool2d", 2)
avg_pool3d = of_axes(_avg_pool, "avg_pool3d", 3)
max_pool2d = of_axes(_max_pool, "max_pool2d", 2)
max_pool3d = of_axes(_max_pool, "max_pool3d", 3)
adaptive_avg_pool2d = of_axes(_adaptive_avg, "adaptive_avg_pool2d", 2)
adaptive_avg_pool3d = of_axes(_adaptive_avg, "adaptive_avg_pool3d", 3)
adaptive_max_pool2d = of_axes(_adaptive_max, "adaptive_max_pool2d", 2)
adaptive_max_pool3d = of_axes(_adaptive_max, "adaptive_max_pool3d", 3)

export_defined(globals())
