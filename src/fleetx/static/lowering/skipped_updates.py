"""Updates that a step may skip: ops with a variable in the slot `SkipUpdate`.

Mixed precision sets it on the ops of an update, to the variable that signals an overflow. These ops
are consecutive in the plan of a step, so that one `if` in the lowered function guards all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fleetx.static.graph.op_registry import EMPTY_NAME, SKIP_UPDATE, get_op
from fleetx.static.graph.operator import Operator
from fleetx.static.lowering.fusion import ops_of


def skip_name(item: Any) -> str | None:
    """Return the variable that decides whether an instruction is skipped; None if it never is."""
    names = {name for op in ops_of(item) for name in op.input(SKIP_UPDATE)}
    return names.pop() if names else None


def guarded_ops(sequence: Sequence[Any], start: int) -> list[Operator]:
    """Return the ops of the instructions from `start` on that the same variable guards, if any."""
    name = skip_name(sequence[start])
    if name is None:
        return []
    found: list[Operator] = []
    for item in sequence[start:]:
        if skip_name(item) != name:
            break
        found += ops_of(item)
    return found


def read_from_outside(ops: Sequence[Operator]) -> list[tuple[str, bool]]:
    """Return the variables that ops read before one of them writes them, and whether in place."""
    made: set[str] = set()
    found: dict[tuple[str, bool], None] = {}
    for op in ops:
        changed = get_op(op.type).inplace.values()
        for slot in get_op(op.type).inputs:
            for name in op.input(slot.name):
                if name not in made and name != EMPTY_NAME:
                    found[name, slot.name in changed] = None
        made.update(op.output_arg_names)
    return list(found)
