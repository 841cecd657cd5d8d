"""A recommender as a folder to serve: the exported model, and its tables beside it.

    fleetx.save_recommender(model, "models/1", example, tables="saved")
    fleetx serve models --watch

The folder appears under its name when it is complete. Its tables hold ids and rows, without the
optimizer's state; they are mapped into memory when the model is served.
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

from fleetx.ps.client.frozen_embedding import table_folder
from fleetx.ps.client.table_lookup import without_tables
from fleetx.ps.tables.table_files import SavedTable
from fleetx.serving.engines.pt2 import TABLES

MODEL = "model.pt2"


def save_recommender(
    model: nn.Module,
    folder: str | os.PathLike[str],
    example: Sequence[Tensor],
    *,
    tables: str | os.PathLike[str] | None,
) -> Path:
    """Export a model with embeddings for `fleetx serve`; return its folder.

    Args:
        model: the trained model, not wrapped by `fleet.distributed_model`; it is not changed.
        folder: a new folder; `models/<number>` for a server that watches `models`.
        example: the model's inputs; their first dimension may have any size when it is served.
        tables: the folder of `fleet.save_persistables`, with the rows of all embeddings; None if
            they stay on the servers of a running job (`fleetx serve --servers`).
    """
    target = Path(folder)
    if target.exists():
        raise FileExistsError(f"{target} exists: save every recommender to a new folder.")
    detached, dims = without_tables(model)
    if not dims:
        raise ValueError(
            f"{type(model).__name__} has no SparseEmbedding: export it with torch.export."
        )
    rows = torch.export.Dim("rows", min=1)
    program = torch.export.export(
        detached.eval(), tuple(example), dynamic_shapes=[{0: rows} for _ in example]
    )
    target.parent.mkdir(parents=True, exist_ok=True)
    unfinished = target.with_name(f".{target.name}-{secrets.token_hex(4)}")
    unfinished.mkdir()
    try:
        torch.export.save(program, unfinished / MODEL)
        for name in dims if tables is not None else ():
            assert tables is not None
            SavedTable(table_folder(Path(tables) / name)).copy_rows(unfinished / TABLES)
        os.rename(unfinished, target)
    except BaseException:
        shutil.rmtree(unfinished)
        raise
    return target
