"""Ops that select among the answers of several servers or the values of several workers."""

from __future__ import annotations

import torch
from torch import Tensor

from fleetx.kernels.row_gradients import make_rows, rows_of
from fleetx.static.graph.op_registry import detached_op, op
from fleetx.static.shapes.infer_rules import rows_of_any_number, same_as


@op("merge_ids", inputs="Ids* Rows* X*", outputs="Out*", grad=None, infer=rows_of_any_number("X"))
def merge_ids(ids: list[Tensor], rows: list[Tensor], values: list[Tensor]) -> list[Tensor]:
    """Return the values of ids, given those of each part for the ids that the part was sent."""
    known, order = torch.cat([each.reshape(-1) for each in rows]).sort()
    found = torch.cat(values)[order]
    outs = []
    for wanted in (each.reshape(-1) for each in ids):
        place = torch.searchsorted(known, wanted).clamp_max(max(len(known) - 1, 0))
        missing = wanted[known[place] != wanted] if len(known) else wanted
        if len(missing):
            raise ValueError(f"merge_ids has no values for id {int(missing[0])}.")
        outs.append(found[place])
    return outs


@detached_op("split_ids", inputs="Ids*", outputs="Out*", infer=rows_of_any_number("Ids"))
def split_ids(ids: list[Tensor], *, names: dict[str, dict[str, list[str]]]) -> list[Tensor]:
    """Divide ids among parts by their remainder: all that occur, each once, or rows as they are."""
    parts = len(names["outputs"]["Out"])
    if ids[0].is_sparse:
        found, values = rows_of(ids[0])
        belongs = [found % parts == part for part in range(parts)]
        return [make_rows(found[mine], values[mine], len(ids[0])) for mine in belongs]
    found = torch.cat([each.reshape(-1) for each in ids]).unique()
    return [found[found % parts == part].reshape(-1, 1) for part in range(parts)]


@op("ref_by_trainer_id", inputs="X* TrainerId", grad=None, infer=same_as())
def ref_by_trainer_id(values: list[Tensor], trainer: Tensor) -> Tensor:
    """Return the value of one worker among those of all."""
    return values[int(trainer)]
