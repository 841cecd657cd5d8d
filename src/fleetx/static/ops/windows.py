"""Padding rules that convolutions and poolings share.

A program gives paddings as one number per axis, as a begin and an end per axis, or as the words
SAME and VALID.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F


def resolve(
    size: Sequence[int],
    kernel: Sequence[int],
    strides: Sequence[int],
    paddings: Sequence[int],
    algorithm: str,
) -> tuple[list[int], list[int]]:
    """Return what to add before and after each spatial axis."""
    n = len(size)
    if algorithm == "VALID":
        return [0] * n, [0] * n
    if algorithm == "SAME":
        before, after = [], []
        for length, k, s in zip(size, kernel, strides, strict=True):
            total = max((-(-length // s) - 1) * s + k - length, 0)
            before.append(total // 2)
            after.append(total - total // 2)
        return before, after
    if len(paddings) == n:
        return list(paddings), list(paddings)
    return list(paddings[0::2]), list(paddings[1::2])


def window_counts(
    size: Sequence[int],
    kernel: Sequence[int],
    strides: Sequence[int],
    paddings: Sequence[int],
    dilations: Sequence[int],
) -> tuple[int, ...] | None:
    """Return how many windows fit along each axis, -1 where the size is open; None if none do."""
    counts = []
    for length, k, s, p, d in zip(size, kernel, strides, paddings, dilations, strict=True):
        room = length + 2 * p - d * (k - 1) - 1
        if min(k, s, d) <= 0 or p < 0 or length == 0 or (length > 0 and room < 0):
            return None
        counts.append(-1 if length < 0 else room // s + 1)
    return tuple(counts)


def pad(
    x: torch.Tensor, before: Sequence[int], after: Sequence[int], value: float = 0.0
) -> torch.Tensor:
    """Pad the last axes of `x`; `before` and `after` are in the order of the axes."""
    flat: list[int] = []
    for b, a in zip(reversed(before), reversed(after), strict=True):
        flat += [b, a]
    return F.pad(x, flat, value=value) if any(flat) else x


def in_either_layout(
    function: Callable[..., torch.Tensor], x: torch.Tensor, data_format: str, *args: Any
) -> torch.Tensor:
    """Return `function(x, *args)` of NC... data; `x` and the result may have the channels last."""
    if data_format in ("NHWC", "NDHWC"):
        return to_channels_last(function(to_channels_first(x), *args))
    return function(x, *args)


def to_channels_first(x: torch.Tensor) -> torch.Tensor:
    """Return N...C data as a view NC...."""
    return x.movedim(-1, 1)


def to_channels_last(x: torch.Tensor) -> torch.Tensor:
    """Return NC... data as a view N...C."""
    return x.movedim(1, -1)
