"""Poolings in two and three dimensions: max, average, global and adaptive."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F

from fleetx.static.graph.dtypes import VarType
from fleetx.static.graph.op_registry import Attr, op
from fleetx.static.ops.windows import (
    pad,
    resolve,
    to_channels_first,
    to_channels_last,
    window_counts,
)
from fleetx.static.shapes.infer_rules import Shape, input_var, set_output
from fleetx.static.shapes.infer_shape import infer_by_running

_FLOATS = (VarType.FP32, VarType.FP64)
_MAX: dict[int, Callable[..., Any]] = {2: F.max_pool2d, 3: F.max_pool3d}
_AVG: dict[int, Callable[..., Any]] = {2: F.avg_pool2d, 3: F.avg_pool3d}
_ADAPTIVE_MAX: dict[int, Callable[..., Any]] = {2: F.adaptive_max_pool2d, 3: F.adaptive_max_pool3d}
_ADAPTIVE_AVG: dict[int, Callable[..., Any]] = {2: F.adaptive_avg_pool2d, 3: F.adaptive_avg_pool3d}


def _attrs(n: int, data_format: str) -> dict[str, Any]:
    return {
        "pooling_type": Attr("STRING", "max"),
        "ksize": Attr("INTS", []),
        "global_pooling": False,
        "strides": [1] * n,
        "paddings": [0] * n,
        "exclusive": True,
        "adaptive": False,
        "use_cudnn": False,
        "ceil_mode": False,
        "data_format": data_format,
        "is_test": False,
        "padding_algorithm": "EXPLICIT",
    }


def _ceil_excess(size: int, k: int, s: int, before: int, after: int) -> int:
    """Return how much must be added at the end for the last, partial window to count."""
    span = size + before + after - k
    return -(-span // s) * s - span


def _pool_any(
    x: torch.Tensor,
    pooling_type: str,
    ksize: list[int],
    strides: list[int],
    before: list[int],
    after: list[int],
    exclusive: bool,
    ceil_mode: bool,
) -> torch.Tensor:
    """Pool with explicit padding, for the cases torch's own poolings define differently."""
    n = len(ksize)
    if ceil_mode:
        excess = zip(x.shape[2:], ksize, strides, before, after, strict=True)
        after = [a + _ceil_excess(*row) for a, row in zip(after, list(excess), strict=True)]
    if pooling_type == "max":
        return _MAX[n](pad(x, before, after, float("-inf")), ksize, strides)
    sums = _AVG[n](pad(x, before, after), ksize, strides, divisor_override=1)
    if exclusive:
        ones = torch.ones((1, 1, *x.shape[2:]), dtype=x.dtype, device=x.device)
        return sums / _AVG[n](pad(ones, before, after), ksize, strides, divisor_override=1)
    return sums / torch.Size(ksize).numel()


def _pool(
    x: torch.Tensor,
    *,
    pooling_type: str,
    ksize: list[int],
    global_pooling: bool,
    strides: list[int],
    paddings: list[int],
    exclusive: bool,
    adaptive: bool,
    ceil_mode: bool,
    data_format: str,
    padding_algorithm: str,
) -> torch.Tensor:
    last = data_format in ("NHWC", "NDHWC")
    if last:
        x = to_channels_first(x)
    n = x.dim() - 2
    if adaptive or global_pooling:
        size = [1] * n if global_pooling else ksize
        out = (_ADAPTIVE_MAX if pooling_type == "max" else _ADAPTIVE_AVG)[n](x, size)
    else:
        before, after = resolve(x.shape[2:], ksize, strides, paddings, padding_algorithm)
        plain = (
            before == after
            and not ceil_mode
            and all(2 * b <= k for b, k in zip(before, ksize, strict=True))
        )
        if plain and pooling_type == "max":
            out = _MAX[n](x, ksize, strides, before)
        elif plain:
            out = _AVG[n](x, ksize, strides, before, False, not exclusive)
        else:
            out = _pool_any(x, pooling_type, ksize, strides, before, after, exclusive, ceil_mode)
    return to_channels_last(out) if last else out


def _infer_pool(op: Any, block: Any) -> None:
    """Compute the shape with the usual settings; run on meta tensors otherwise, or for a message.

    The kernels for meta tensors import sympy, which takes longer than building a network.
    """
    x, ksize, paddings = input_var(op, block, "X"), op.attr("ksize"), op.attr("paddings")
    n = len(ksize)
    usual = op.attr("padding_algorithm") == "EXPLICIT" and not op.attr("ceil_mode")
    usual = usual and op.attr("data_format") in ("NCHW", "NCDHW", "AnyLayout")
    usual = usual and len(op.attr("strides")) == len(paddings) == n and x is not None
    if not usual or len(x.shape) != n + 2 or 0 in x.shape or x.dtype not in _FLOATS:
        return infer_by_running(op, block)
    counts: Shape | None
    if op.attr("adaptive") or op.attr("global_pooling"):
        counts = (1,) * n if op.attr("global_pooling") else tuple(ksize)
    else:
        counts = window_counts(x.shape[2:], ksize, op.attr("strides"), paddings, [1] * n)
    wide = any(2 * p > k for p, k in zip(paddings, ksize, strict=True))
    if counts is None or 0 in counts or wide:
        return infer_by_running(op, block)
    return set_output(op, block, "Out", (*x.shape[:2], *counts), x.dtype)


op("pool2d", attrs=_attrs(2, "NCHW"), infer=_infer_pool)(_pool)
op("pool3d", attrs=_attrs(3, "NCDHW"), infer=_infer_pool)(_pool)


def _max_pool_with_index(
    x: torch.Tensor,
    *,
    ksize: list[int],
    global_pooling: bool,
    adaptive: bool,
    strides: list[int],
    paddings: list[int],
) -> tuple[torch.Tensor, torch.Tensor]:
    n = x.dim() - 2
    if adaptive or global_pooling:
        # A global window replaces the number of bins too: with both, each pixel is a bin.
        size = list(x.shape[2:]) if adaptive and global_pooling else [1] * n
        size = ksize if adaptive and not global_pooling else size
        out, index = _ADAPTIVE_MAX[n](x, size, return_indices=True)
    elif all(2 * p <= k for p, k in zip(paddings, ksize, strict=True)):
        out, index = _MAX[n](x, ksize, strides, paddings, return_indices=True)
    else:
        padded = pad(x, paddings, paddings, float("-inf"))
        out, index = _MAX[n](padded, ksize, strides, return_indices=True)
        index = _without_padding(index, padded.shape[2:], x.shape[2:], paddings)
    return out, index.to(torch.int32)


def _without_padding(
    index: torch.Tensor, padded: Sequence[int], size: Sequence[int], paddings: Sequence[int]
) -> torch.Tensor:
    """Return flat positions in a padded image as positions in the image itself."""
    places = torch.zeros_like(index)
    weight = 1
    for length, real, before in reversed(list(zip(padded, size, paddings, strict=True))):
        places += (index % length - before) * weight
        index = torch.div(index, length, rounding_mode="floor")
        weight *= real
    return places


for _n in (2, 3):
    op(
        f"max_pool{_n}d_with_index",
        outputs="Out Mask",
        attrs={
            "ksize": Attr("INTS", []),
            "global_pooling": False,
            "adaptive": False,
            "strides": [1] * _n,
            "paddings": [0] * _n,
        },
    )(_max_pool_with_index)


@op("spp")
def spp(x: torch.Tensor, *, pyramid_height: int = 1, pooling_type: str = "max") -> torch.Tensor:
    """Pool into 1, 4, 16, ... bins per image, and join them: a vector of one length."""
    levels = []
    for level in range(pyramid_height):
        bins = 2**level
        ksize = [-(-size // bins) for size in x.shape[2:]]
        edges = [(k * bins - n + 1) // 2 for k, n in zip(ksize, x.shape[2:], strict=True)]
        pooled = _pool_any(x, pooling_type, ksize, ksize, edges, edges, True, False)
        # A bin of padding alone has the smallest number, not minus infinity.
        levels.append(pooled.flatten(1).clamp_min(torch.finfo(x.dtype).min))
    return torch.cat(levels, 1)


@op("unpool", inputs="X Indices!", attrs={"unpooling_type": "max"})
def unpool(
    x: torch.Tensor,
    indices: torch.Tensor,
    *,
    ksize: list[int] = [],
    strides: list[int] = [1, 1],
    paddings: list[int] = [0, 0],
) -> torch.Tensor:
    """Put values back where a maximum was taken, zeros elsewhere."""
    size = [
        (n - 1) * s - 2 * p + k
        for n, k, s, p in zip(x.shape[2:], ksize, strides, paddings, strict=True)
    ]
    out = x.new_zeros(*x.shape[:2], size[0] * size[1])
    out = out.scatter(2, indices.flatten(2).long(), x.flatten(2))
    return out.reshape(*x.shape[:2], *size)
