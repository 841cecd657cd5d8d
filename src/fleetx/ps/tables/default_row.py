"""The default row, which readers get for ids without a row.

In training, each such id reads as its initial values; in a model that is evaluated or served these
have no meaning, so the default row is the mean of the initializer.
"""

from __future__ import annotations

import torch
from torch import Tensor

from fleetx.kernels.row_initializer import full_settings
from fleetx.ps.tables.table_spec import SparseTableSpec


def default_row(spec: SparseTableSpec) -> Tensor:
    """Return the row: the mean of the table's initializer, zeros for most."""
    settings = full_settings(spec.initializer.kind, spec.initializer.settings)
    value = 0.0
    if spec.entry is None:  # ids that are not admitted read as zeros
        value = settings.get("value", settings.get("mean", 0.0))
        if spec.initializer.kind == "uniform":
            value = (settings["low"] + settings["high"]) / 2
    return torch.full((spec.dim,), float(value), dtype=getattr(torch, spec.dtype))
