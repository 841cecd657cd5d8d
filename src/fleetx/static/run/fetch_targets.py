"""Targets of a run: the names to fetch, and the update ops that `minimize` returned."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fleetx.static.graph.operator import Operator, OpRole
from fleetx.static.graph.program import Program
from fleetx.static.graph.variable import Variable


def split_fetches(fetch_list: Any) -> tuple[list[str], list[Operator]]:
    """Return the names to fetch, and the update ops in the list."""
    if fetch_list is None:
        return [], []
    if isinstance(fetch_list, Variable | str):
        fetch_list = [fetch_list]
    names: list[str] = []
    updates: list[Operator] = []
    for item in fetch_list:
        if isinstance(item, str):
            names.append(item)
        elif isinstance(item, Variable):
            names.append(item.name)
        elif isinstance(item, Operator):
            updates.append(item)
        elif isinstance(item, list | tuple):
            inner_names, inner_updates = split_fetches(item)
            updates += inner_updates
            if not inner_updates:  # else these are the parameters and gradients beside the updates
                names += inner_names
        else:
            raise TypeError(
                f"fetch_list takes Variables or their names, not {type(item).__name__}: {item!r}."
            )
    return names, updates


def prune_to_targets(
    program: Program, feeds: Sequence[str], fetches: Sequence[str], updates: Sequence[Operator]
) -> Program:
    """Return a copy with only the ops between the feeds and the fetches and updates.

    Without updates, all of the program's updates are kept.
    """
    ops = program.global_block().ops
    targets = updates or [op for op in ops if op.op_role & OpRole.Optimize]
    return program.prune_with_input(feeds, [*fetches, *targets])
