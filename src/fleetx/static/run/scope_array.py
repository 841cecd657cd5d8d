"""ScopeArray: the tensors of an array variable in a scope, which scripts append to.

Ops hold tensors with their offsets; a script appends a LoDTensor, which is taken apart here.
"""

from __future__ import annotations

from typing import Any

import torch

from fleetx.static.shapes.lod import WithLod


class ScopeArray(list[Any]):
    """A list of tensors, each with its offsets (LoD) if it has some."""

    def append(self, item: Any) -> None:
        """Append a tensor; of a LoDTensor, its value and its offsets."""
        lod = getattr(item, "lod", None)
        if not isinstance(item, WithLod) and callable(lod):
            tensor = torch.as_tensor(item.value)
            item = WithLod(tensor, lod()) if lod() else tensor
        super().append(item)
