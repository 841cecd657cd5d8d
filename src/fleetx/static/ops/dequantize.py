"""Ops that turn small integers of saved models back into numbers."""

from __future__ import annotations

import torch
from torch import Tensor

from fleetx.static.graph.dtypes import VarType
from fleetx.static.graph.op_registry import Attr, op
from fleetx.static.shapes.infer_rules import same_as, shapes

_PER_FLOAT = 4  # bytes, each of them a number


_as_floats = same_as(dtype=VarType.FP32)


@op("dequantize_abs_max", inputs="X Scale", grad=None, infer=_as_floats)
def dequantize_abs_max(x: Tensor, scale: Tensor, *, max_range: float = 127.0) -> Tensor:
    """Return x * scale / max_range, of integers."""
    return x.to(torch.float32) * (scale.reshape(-1)[0] / max_range)


@op("dequantize_log", inputs="X Dict", grad=None, infer=_as_floats)
def dequantize_log(x: Tensor, table: Tensor) -> Tensor:
    """Return entries of a table; the integers -128 to -1 are the negated entries 0 to 127."""
    index = x.long()
    values = table.reshape(-1)[torch.where(index < 0, index + 128, index)]
    return torch.where(index < 0, -values, values)


@op(
    "lookup_table_dequant",
    inputs="W Ids",
    attrs={"padding_idx": Attr("LONG", -1)},
    grad=None,
    infer=shapes(
        "W Ids",
        lambda op, w, ids: {"Out": ((*ids.shape[:-1], (w.shape[1] - 2) * _PER_FLOAT), w.dtype)},
    ),
)
def lookup_table_dequant(table: Tensor, ids: Tensor, *, padding_idx: int) -> Tensor:
    """Return rows of a table whose bytes are steps between the row's first two numbers."""
    flat = ids.reshape(-1)
    rows = table[flat]
    steps = rows[:, 2:].contiguous().view(torch.uint8).to(table.dtype)
    low, high = rows[:, :1], rows[:, 1:2]
    out = steps * ((high - low) / 256) + low
    if padding_idx != -1:
        out = out.masked_fill((flat == padding_idx).reshape(-1, 1), 0.0)
    return out.reshape(*ids.shape[:-1], -1)
