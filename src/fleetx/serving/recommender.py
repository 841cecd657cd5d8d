"""A recommender as a folder to serve: the exported model, and its tables beside it.

    fleetx.save_recommender(model, "models/1", example, tables="saved")
    fleetx serve models --watch

The folder appears under its name when it is complete. Its tables hold ids and rows, without the
optimizer's state; they are mapped into memory when the model is served.
"""

from __future__ import annotations

import inspect
import os
import secrets
import shutil
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

from fleetx.ps.client.table_lookup import without_tables
from fleetx.ps.tables.table_files import SavedTable, table_folder
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
        model: the trained model, or the result of `fleet.distributed_model`; it is not changed.
        folder: a new folder; `models/<number>` for a server that watches `models`.
        example: the model's inputs; their first dimension may have any size when it is served.
        tables: the folder of `fleet.save_persistables`, with the rows of all embeddings; None if
            they stay on the servers of a running job (`fleetx serve --servers`).
    """
    target = Path(folder)
    if target.exists():
        raise FileExistsError(f"{target} exists: save every recommender to a new folder.")
    if isinstance(example, Tensor):
        raise TypeError(
            "save_recommender was given a tensor as the example, but takes the sequence of the "
            "model's inputs: write (tensor,) for a model with one."
        )
    detached, dims = without_tables(_unwrapped(model))
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


def _unwrapped(model: nn.Module) -> nn.Module:
    """Return the module inside wrappers such as that of `fleet.distributed_model`, or DDP.

    Their class has a `forward` that takes anything, so that an export could not name the inputs.
    """
    inner = getattr(model, "module", None)
    _, *taken = inspect.signature(type(model).forward).parameters.values()
    takes_all = {each.kind for each in taken} == {
        inspect.Parameter.VAR_POSITIONAL,
        inspect.Parameter.VAR_KEYWORD,
    }
    return _unwrapped(inner) if takes_all and isinstance(inner, nn.Module) else model
