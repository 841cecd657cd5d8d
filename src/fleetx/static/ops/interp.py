"""Resizing of images, volumes and signals, in two generations of ops (`_interp`, `_interp_v2`).

With `align_corners` the corners of both images coincide. Without, `align_mode` 0 compares centres
of pixels (as torch does) and 1 their upper left corners.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F

from fleetx.static.graph.op_registry import Attr, op
from fleetx.static.ops.windows import to_channels_first, to_channels_last

_AXES = {"linear": 1, "bilinear": 2, "nearest": 2, "bicubic": 2, "trilinear": 3}


def _scales(scale: Any, n: int) -> list[float]:
    values = list(scale) if isinstance(scale, list | tuple) else [scale]
    values = values * n if len(values) == 1 else values
    return [float(v) for v in values if v > 0]


def _target(
    size: Sequence[int],
    out_size: torch.Tensor | None,
    size_tensors: list[torch.Tensor],
    scale_tensor: torch.Tensor | None,
    attributes: Sequence[int],
    scale: Any,
) -> tuple[list[int], list[float]]:
    """Return the size of the result, and the scales it comes from (empty if the size was given)."""
    n = len(size)
    if size_tensors:
        return [int(t) for t in size_tensors], []
    if out_size is not None:
        return [int(v) for v in out_size.tolist()], []
    scales = _scales(scale if scale_tensor is None else scale_tensor.tolist(), n)
    if scales:
        return [int(length * s) for length, s in zip(size, scales, strict=True)], scales
    return list(attributes[-n:]), []


def _along(x: torch.Tensor, dim: int, out: int, ratio: float, nearest: bool) -> torch.Tensor:
    """Resize one axis, reading from position `ratio * i`."""
    length = x.shape[dim]
    where = torch.arange(out, dtype=torch.float64, device=x.device) * ratio
    if nearest:
        index = (where + 0.5).long().clamp_max(length - 1)
        return x.index_select(dim, index)
    low = where.long().clamp_max(length - 1)
    share = (where - low).to(x.dtype).reshape([-1] + [1] * (x.dim() - dim - 1))
    low_values = x.index_select(dim, low)
    high_values = x.index_select(dim, (low + 1).clamp_max(length - 1))
    return low_values + (high_values - low_values) * share


def _resize(
    x: torch.Tensor,
    size: list[int],
    scales: list[float],
    method: str,
    align_corners: bool,
    mode: int,
) -> torch.Tensor:
    if method == "nearest" and not align_corners:
        if not scales:
            return F.interpolate(x, size, mode="nearest")
    elif align_corners and method != "nearest":
        return F.interpolate(x, size, mode=method, align_corners=True)
    elif method != "nearest" and (mode == 0 or method == "bicubic"):
        if not scales:
            return F.interpolate(x, size, mode=method, align_corners=False)
        return F.interpolate(
            x, scale_factor=scales, mode=method, align_corners=False, recompute_scale_factor=False
        )
    for i, out in enumerate(size):
        length = x.shape[2 + i]
        if align_corners:
            ratio = (length - 1) / (out - 1) if out > 1 else 0.0
        else:
            ratio = 1.0 / scales[i] if scales else length / out
        if method == "nearest" and not align_corners:
            index = (torch.arange(out, device=x.device) * ratio).long().clamp_max(length - 1)
            x = x.index_select(2 + i, index)
        else:
            x = _along(x, 2 + i, out, ratio, method == "nearest")
    return x


def _first_of_one(x: torch.Tensor, size: Sequence[int], method: str) -> torch.Tensor:
    """Keep the first element of axes that are resized to one, as the first generation does."""
    for i, out in enumerate(size if method != "bicubic" else ()):
        x = x.narrow(2 + i, 0, 1) if out == 1 else x
    return x


def _interp(
    x: torch.Tensor,
    out_size: torch.Tensor | None,
    size_tensors: list[torch.Tensor],
    scale_tensor: torch.Tensor | None,
    *,
    data_layout: str = "NCHW",
    out_d: int = 0,
    out_h: int = 0,
    out_w: int = 0,
    scale: Any,
    interp_method: str,
    align_corners: bool = True,
    align_mode: int = 1,
) -> torch.Tensor:
    last = data_layout == "NHWC"
    if last:
        x = to_channels_first(x)
    size, scales = _target(
        x.shape[2:], out_size, size_tensors, scale_tensor, (out_d, out_h, out_w), scale
    )
    if not isinstance(scale, list | tuple):
        scales = []  # the first generation measures with the rounded sizes
        x = _first_of_one(x, size, interp_method)
    integers = not x.is_floating_point() and interp_method != "nearest"
    values = x.float() if integers else x
    out = _resize(values, size, scales, interp_method, align_corners, align_mode)
    if integers:
        out = out.to(x.dtype)  # cut off, not rounded
    return to_channels_last(out) if last else out


def _infer(op: Any, block: Any) -> None:
    """The size is unknown where it comes from a tensor."""
    x = block.var_recursive(op.input("X")[0])
    n = x.ndim - 2
    spatial = x.shape[1:-1] if op.attr("data_layout") == "NHWC" else x.shape[2:]
    given = [op.attr(name) for name in ("out_d", "out_h", "out_w")][-n:]
    scales = _scales(op.attr("scale"), n)
    if any(op.input(slot) for slot in ("OutSize", "SizeTensor", "Scale")):
        size = [-1] * n
    elif scales:
        size = [int(d * s) if d >= 0 else -1 for d, s in zip(spatial, scales, strict=True)]
    else:
        size = given
    if op.attr("data_layout") == "NHWC":
        shape = (x.shape[0], *size, x.shape[-1])
    else:
        shape = (*x.shape[:2], *size)
    block.var_recursive(op.output("Out")[0]).set_inferred(shape, x.dtype)


for _method in _AXES:
    for _suffix, _scale in (("_interp", 0.0), ("_interp_v2", Attr("FLOATS", []))):
        op(
            _method + _suffix,
            inputs="X OutSize?! SizeTensor*?! Scale?!",
            attrs={"scale": _scale, "interp_method": _method},
            infer=_infer,
        )(_interp)
