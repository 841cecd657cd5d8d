"""The op by which an exported model looks up rows in tables beside it, not in its own constants.

`torch.export` keeps the call `fleetx::table_rows(ids, name, dim)`; the process that runs the
program binds `name` to a table. So a table that is larger than memory stays in mapped files, and
two versions of a model with tables of the same name can run side by side.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from fleetx.ps.client.embedding import RowModule
from fleetx.ps.client.frozen_embedding import FrozenEmbedding

Lookup = Callable[[Tensor], Tensor]

OP = "fleetx::table_rows"
_lookups: dict[str, Lookup] = {}


# PyTorch 2.4 cannot read the types of the parameters from a module with postponed annotations.
@torch.library.custom_op(OP, mutates_args=(), schema="(Tensor ids, str name, int dim) -> Tensor")
def table_rows(ids: Tensor, name: str, dim: int) -> Tensor:
    """Return the rows of ids in a table registered by `provide`."""
    if name not in _lookups:
        raise RuntimeError(
            f"the table {name!r} of an exported model is not loaded: serve the model's folder with "
            "fleetx serve, or call fleetx.serving.load_model on it."
        )
    return _lookups[name](ids)


@table_rows.register_fake
def _(ids: Tensor, name: str, dim: int) -> Tensor:
    return torch.empty(*ids.shape, dim)


def provide(name: str, lookup: Lookup) -> None:
    """Register a table under a name in this process."""
    _lookups[name] = lookup


def withdraw(name: str) -> None:
    """Unregister a name."""
    _lookups.pop(name, None)


class TableLookup(nn.Module):
    """Replacement of an embedding in a model that is exported without its rows."""

    def __init__(self, name: str, dim: int) -> None:
        super().__init__()
        self.table_name, self.dim = name, dim

    def forward(self, ids: Tensor) -> Tensor:
        """Return the rows of ids: ids.shape + (dim,)."""
        found: Tensor = table_rows(ids, self.table_name, self.dim)
        return found


def without_tables(model: nn.Module) -> tuple[nn.Module, dict[str, int]]:
    """Return a copy of a model with look-ups instead of embeddings, and their dims by name."""
    dims: dict[str, int] = {}
    copies: dict[int, Any] = {}
    for module in model.modules():
        if not isinstance(module, RowModule | FrozenEmbedding):
            continue
        if module.padding_idx is not None:
            raise ValueError(
                f"the embedding {module.table_name!r} has padding_idx={module.padding_idx}, which "
                "an exported look-up does not support: mask its vectors in the model."
            )
        dims[module.table_name] = module.dim
        copies[id(module)] = TableLookup(module.table_name, module.dim)
    return copy.deepcopy(model, copies), dims
