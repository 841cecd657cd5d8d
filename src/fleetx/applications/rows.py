"""Embeddings of recommendation models: rows in the module, or in tables on parameter servers."""

from __future__ import annotations

from torch import nn

from fleetx.ps.client.embedding import SparseEmbedding
from fleetx.ps.tables.table_spec import InitializerSpec


def embedding_rows(
    name: str, count: int, dim: int, *, on_servers: bool = False, bound: float = 0.01
) -> nn.Module:
    """Return an embedding whose rows are initialised between -bound and bound.

    Args:
        name: the table's name on the servers.
        count: the number of ids; a table on servers accepts any id.
        dim: the length of a row.
        on_servers: create a `SparseEmbedding`, whose rows are created on first use, instead of
            an `nn.Embedding(sparse=True)`, which stores all of them.
        bound: the maximum initial value.
    """
    if on_servers:
        uniform = InitializerSpec(kind="uniform", settings={"low": -bound, "high": bound})
        return SparseEmbedding(name, dim, initializer=uniform)
    rows = nn.Embedding(count, dim, sparse=True)
    nn.init.uniform_(rows.weight, -bound, bound)
    return rows
