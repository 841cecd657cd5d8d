"""The op that marks where some slices of an image batch are strongest."""

from __future__ import annotations

import torch

from fleetx.static.graph.op_registry import op
from fleetx.static.shapes.infer_rules import same_as


@op("similarity_focus", grad=None, infer=same_as())
def similarity_focus(x: torch.Tensor, *, axis: int = 1, indexes: list[int] = []) -> torch.Tensor:
    """Return ones at the strongest places of the chosen slices, zeros elsewhere.

    In each slice along `axis`, the greatest value is taken, then the greatest outside its row and
    column, and so on until rows or columns are used up. Marks hold for all slices.
    """
    moved = x.movedim(axis, 1)
    marks = torch.zeros_like(moved)
    rows, columns = moved.shape[2:]
    for image in range(len(moved)):
        for index in indexes:
            order = moved[image, index].flatten().argsort(descending=True, stable=True).tolist()
            used_rows: set[int] = set()
            used_columns: set[int] = set()
            for place in order:
                row, column = divmod(place, columns)
                if row in used_rows or column in used_columns:
                    continue
                used_rows.add(row)
                used_columns.add(column)
                marks[image, :, row, column] = 1
                if len(used_rows) == min(rows, columns):
                    break
    return marks.movedim(1, axis).contiguous()
