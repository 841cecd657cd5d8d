"""The states of all workers in a checkpoint as one, for a job with another number of workers.

Floating-point tensors that differ are averaged, with zeros for missing ones: parameters of LocalSGD
become what an average would give, and residuals of DGC and accumulated gradients of
`gradient_merge` keep their effect, because updates divide by the number of workers. Anything else
that differs (random states, positions in the data) cannot be averaged: a worker gets that of one of
the former workers, and its name is reported.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch


@dataclass
class Combined:
    """The states of several workers as one."""

    states: dict[str, Any] = field(default_factory=dict)
    averaged: list[str] = field(default_factory=list)
    """Paths of tensors that differed and were averaged."""
    taken: list[str] = field(default_factory=list)
    """Paths of values that differed and cannot be averaged."""

    def summary(self) -> str:
        """Return in a clause what was done."""
        text = f"{len(self.averaged)} tensor(s) that differed are averaged"
        if self.taken:
            more = f" and {len(self.taken) - 3} more" if len(self.taken) > 3 else ""
            text += (
                f"; {', '.join(self.taken[:3])}{more} cannot be averaged: each worker gets that of "
                "one of the former workers"
            )
        return text


def combine(states: Sequence[dict[str, Any]], rank: int) -> Combined:
    """Return the states for worker `rank` of a job with another number of workers."""
    result = Combined()
    result.states = _combine(list(states), "", rank % len(states), result)
    return result


def _combine(values: list[Any], path: str, choice: int, result: Combined) -> Any:
    present = [value for value in values if value is not None]
    if not present:
        return None
    first = present[0]
    if all(isinstance(value, dict) for value in present):
        keys = dict.fromkeys(key for value in present for key in value)
        return {
            key: _combine(
                [None if value is None else value.get(key) for value in values],
                f"{path}.{key}" if path else str(key),
                choice,
                result,
            )
            for key in keys
        }
    is_list = isinstance(first, list | tuple)
    if is_list and all(type(v) is type(first) and len(v) == len(first) for v in values):
        items = [
            _combine(list(each), f"{path}.{i}", choice, result)
            for i, each in enumerate(zip(*values, strict=True))
        ]
        return tuple(items) if isinstance(first, tuple) else items
    if len(present) == len(values) and all(_is_equal(first, value) for value in values[1:]):
        return first
    if all(_is_like(first, value) for value in present):
        result.averaged.append(path)
        total = torch.zeros_like(first)
        for value in present:
            total += value / len(values)
        return total
    result.taken.append(path)
    return values[choice] if values[choice] is not None else first


def _is_equal(a: Any, b: Any) -> bool:
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        return a.shape == b.shape and a.dtype == b.dtype and torch.equal(a, b)
    return type(a) is type(b) and bool(a == b)


def _is_like(a: Any, b: Any) -> bool:
    """Return whether two values are floating tensors of one shape."""
    return (
        isinstance(a, torch.Tensor)
        and isinstance(b, torch.Tensor)
        and a.is_floating_point()
        and a.shape == b.shape
        and a.dtype == b.dtype
    )
