"""ScopeArray: the tensors of an array variable in a scope, which scripts read and change.

Ops hold tensors with their offsets; scripts append and get LoDTensors.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from fleetx.static.shapes.lod import WithLod


class ScopeArray(Sequence[Any]):
    """A view of the list in a variable; the next run uses appended tensors."""

    def __init__(self, items: list[Any]) -> None:
        self._items = items

    def append(self, item: Any) -> None:
        """Append a tensor, or the value and the offsets of a LoDTensor."""
        self._items.append(_held(item))

    def __setitem__(self, index: int, item: Any) -> None:
        self._items[index] = _held(item)

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[Any]:
        return map(_shown, self._items)

    def __getitem__(self, index: Any) -> Any:
        found = self._items[index]
        return list(map(_shown, found)) if isinstance(index, slice) else _shown(found)


def _held(item: Any) -> Any:
    lod = getattr(item, "lod", None)
    if isinstance(item, WithLod) or not callable(lod):
        return item
    tensor = torch.as_tensor(item.value)
    return WithLod(tensor, lod()) if lod() else tensor


def _shown(item: Any) -> Any:
    from fleetx.static.readers.lod_tensor import LoDTensor

    if isinstance(item, WithLod):
        return LoDTensor(item.tensor, item.lod or ())
    return LoDTensor(item) if isinstance(item, torch.Tensor) else item
