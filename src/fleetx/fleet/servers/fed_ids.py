"""Which ids of a program's look-ups are fed: their rows can be fetched when the feed is known."""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fleetx.static.graph.program import Program

LookUp = tuple[str, list[str], int]
"""A table, the variables with ids for it, and its padding (-1 for none)."""


class FedIds:
    """What the steps of programs look up."""

    def __init__(self) -> None:
        self._known: weakref.WeakKeyDictionary[Program, tuple[int, list[LookUp]]] = (
            weakref.WeakKeyDictionary()
        )

    def of(self, program: Program) -> list[LookUp]:
        """Return the look-ups of a program's training step; none if it does not train."""
        known = self._known.get(program)
        if known is None or known[0] != program.version:
            known = self._known[program] = (program.version, _look_ups(program))
        return known[1]


def _look_ups(program: Program) -> list[LookUp]:
    block = program.global_block()
    if not any(op.type == "send" for op in block.ops):  # no step of training ends with its run
        return []
    found = []
    for op in block.ops:
        if op.type == "distributed_lookup_table":
            tables, paddings = op.attr("table_names"), op.attr("padding_ids")
            for number, (table, padding) in enumerate(zip(tables, paddings, strict=True)):
                owners = zip(op.input("Ids"), op.attr("table_of_ids"), strict=True)
                found.append((table, [ids for ids, owner in owners if owner == number], padding))
    return found


def fed_tensor(value: Any) -> Tensor | None:
    """Return fed ids as a tensor; None for what is not fed, or is no array of integers."""
    value = getattr(value, "value", value)  # of a LoDTensor
    if isinstance(value, np.ndarray) and value.dtype.kind == "i":
        return torch.from_numpy(np.ascontiguousarray(value))
    return value if isinstance(value, Tensor) and not value.is_floating_point() else None
