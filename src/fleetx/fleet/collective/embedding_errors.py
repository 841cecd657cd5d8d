"""Which id was outside which embedding of a model: said after its forward pass has failed.

PyTorch says "index out of range in self". The frames of the error still hold the embedding and the
ids it was called with, so that forward passes that succeed pay nothing.
"""

from __future__ import annotations

import traceback

from torch import Tensor, nn

_FORWARDS = (nn.Embedding.forward.__code__, nn.EmbeddingBag.forward.__code__)


def outside_embedding(error: Exception, model: nn.Module) -> str | None:
    """Return a sentence about an id outside an embedding of a model; None if that is not it."""
    for frame, _ in traceback.walk_tb(error.__traceback__):
        if frame.f_code not in _FORWARDS:
            continue
        module, ids = frame.f_locals["self"], frame.f_locals["input"]
        if not isinstance(ids, Tensor) or ids.is_floating_point():
            return None
        rows = module.num_embeddings
        outside = ids[(ids < 0) | (ids >= rows)]
        if not outside.numel():
            return None
        name = next((name for name, each in model.named_modules() if each is module), "")
        return (
            f"id {int(outside[0])} is outside the embedding {name!r}, which has {rows} rows: ids "
            f"go from 0 to {rows - 1}."
        )
    return None
