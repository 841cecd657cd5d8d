"""Smaller versions of a case: without one of its attributes, or with one of its sizes reduced."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from op_cases import OpCase


def _map(value: Any, change: Any) -> Any:
    return [change(item) for item in value] if isinstance(value, list) else change(value)


def _sizes(case: OpCase) -> list[int]:
    found: set[int] = set()
    for value in case.inputs.values():
        items = value if isinstance(value, list) else [value]
        if any(isinstance(item, tuple) for item in items):
            return []  # lengths of sequences would have to follow
        found.update(size for item in items for size in np.shape(item) if size > 1)
    return sorted(found, reverse=True)


def smaller(case: OpCase) -> Iterator[OpCase]:
    """Yield the case with one thing less; some of them may be invalid."""
    for name in case.attrs:
        yield replace(case, attrs={k: v for k, v in case.attrs.items() if k != name})
    for size in _sizes(case):
        for less in {1, size // 2} - {0}:

            def cut(array: np.ndarray, size: int = size, less: int = less) -> np.ndarray:
                return array[tuple(slice(less if n == size else n) for n in array.shape)]

            yield replace(case, inputs={s: _map(v, cut) for s, v in case.inputs.items()})


def describe(case: OpCase) -> str:
    """Return the case in one line: type, attributes, shapes."""
    shapes = {
        slot: _map(value, lambda item: (np.shape(item[0]), *item[1:]) if isinstance(item, tuple)
                   else np.shape(item))
        for slot, value in case.inputs.items()
    }  # fmt: skip
    return f"{case.type} {case.attrs} {shapes}"
