"""The rows that the gradient of a table consists of.

A table that is looked up with `is_sparse` has gradients only for the rows in use. Gradients are
dense tensors, but Adam treats such gradients differently (`lazy_mode`), so its ops receive the ids
that were looked up in the step.
"""

from __future__ import annotations

from fleetx.static.graph.operator import Operator
from fleetx.static.graph.program import writes_of
from fleetx.static.lowering.needed_ops import count_writes

_LOOKUPS = frozenset({"lookup_table_grad", "lookup_table_v2_grad"})
# Ops whose result has the rows of its inputs X and no others.
_KEEPING = frozenset({"sum", "elementwise_mul", "clip", "clip_by_norm", "scale", "cast"})
_UPDATES = frozenset({"adam", "adamw"})


def find_used_rows(ops: list[Operator]) -> dict[int, list[str]]:
    """Return the names of the looked-up ids of each update op, by the uid of the op."""
    found: dict[int, list[str]] = {}
    ids_of: dict[str, list[str]] = {}  # gradient name -> names of ids
    for op in ops:
        if op.type in _UPDATES:
            ids = ids_of.get(op.input("Grad")[0])
            if ids:
                found[op.uid] = sorted(set(ids))
            continue
        ids = _ids(op, ids_of)
        for name in writes_of(op):
            if ids:
                ids_of[name] = ids
            else:
                ids_of.pop(name, None)
    if found:
        writes = count_writes(ops)
        found = {uid: ids for uid, ids in found.items() if all(writes[n] < 2 for n in ids)}
    return found


def _ids(op: Operator, ids_of: dict[str, list[str]]) -> list[str]:
    """Return the ids behind the result of an op, or nothing if it may have other rows too."""
    if op.type in _LOOKUPS:
        return op.input("Ids") if op.attr("is_sparse") else []
    if op.type not in _KEEPING or not all(name in ids_of for name in op.input("X")):
        return []
    return [each for name in op.input("X") for each in ids_of[name]]
