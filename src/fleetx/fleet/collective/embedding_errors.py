"""Report the id that is out of range of an embedding, after a failed forward pass.

PyTorch says "index out of range in self". The frames of the error still hold the embedding and its
ids, so that successful forward passes have no overhead.
"""

from __future__ import annotations

import traceback

from torch import Tensor, nn
from torch.nn import functional

_LOOKUPS = (functional.embedding.__code__, functional.embedding_bag.__code__)


def outside_embedding(error: Exception, model: nn.Module) -> str | None:
    """Return a message about an id out of range of an embedding; None for any other cause."""
    for frame, _ in traceback.walk_tb(error.__traceback__):
        if frame.f_code not in _LOOKUPS:
            continue
        ids, weight = frame.f_locals["input"], frame.f_locals["weight"]
        if not isinstance(ids, Tensor) or ids.is_floating_point():
            return None
        rows = len(weight)
        outside = ids[(ids < 0) | (ids >= rows)]
        if not outside.numel():
            return None
        return (
            f"id {int(outside[0])} is outside the embedding {_name(weight, model)!r}, which has "
            f"{rows} rows: ids go from 0 to {rows - 1}."
        )
    return None


def _name(weight: Tensor, model: nn.Module) -> str:
    """Return what a model calls an embedding: the name of its module, or of its parameter."""
    for name, module in model.named_modules():
        if isinstance(module, nn.Embedding | nn.EmbeddingBag) and module.weight is weight:
            return name
    return next((name for name, p in model.named_parameters() if p is weight), "")
