"""Checks of the saved state of a sparse table, before anything is loaded from it."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import torch
from torch import Tensor

from fleetx.kernels.index import check_ids, unique_ids
from fleetx.ps.tables.usage import LATEST


def check_state(
    state: Mapping[str, Tensor],
    name: str,
    columns: Mapping[str, int],
    of_table: Collection[str],
    dtype: torch.dtype,
) -> tuple[Tensor, int]:
    """Reject a state that does not fit the table `name`; return its ids and time.

    `columns` are those of a row, with their widths; `of_table` names the values that the optimizer
    has once for the whole table.
    """
    if "ids" not in state or "Param" not in state:
        raise ValueError(f"the state of table {name!r} needs 'ids' and 'Param'.")
    try:
        ids = check_ids(state["ids"])
    except TypeError as error:
        raise ValueError(f"the state of table {name!r} has invalid ids: {error}") from error
    if len(unique_ids(ids)[0]) != len(ids):
        raise ValueError(f"the state of table {name!r} has an id twice.")
    count, whole = (len(ids),), torch.int64
    wanted: dict[str, tuple[tuple[int, ...], torch.dtype]] = {
        **{each: ((len(ids), width), dtype) for each, width in columns.items()},
        **dict.fromkeys(of_table, ((1,), dtype)),
        "clock": ((1,), whole),
        "draws": ((1,), whole),
        "pushes": ((1,), whole),
        "score": (count, torch.float32),
        "seen": (count, whole),
    }
    for each, (shape, kind) in wanted.items():
        value = state.get(each)
        if value is not None and (tuple(value.shape) != shape or value.dtype is not kind):
            raise ValueError(
                f"table {name!r} needs {each!r} of shape {list(shape)} and type {kind}, but "
                f"the state has {list(value.shape)} and {value.dtype}."
            )
    if ("score" in state) != ("seen" in state):
        raise ValueError(f"the state of table {name!r} needs both 'score' and 'seen'.")
    waiting = [state[each] for each in ("waiting_ids", "waiting_counts") if each in state]
    shapes = {(each.shape, each.dtype) for each in waiting}
    if waiting and (
        len(waiting) != 2
        or len(shapes) != 1
        or waiting[0].dim() != 1
        or waiting[0].dtype is not whole
    ):
        raise ValueError(
            f"the state of table {name!r} needs ids and counts of ids not yet admitted."
        )
    clock = int(state["clock"][0]) if "clock" in state else 0
    if not 0 <= clock <= LATEST:
        raise ValueError(f"the state of table {name!r} has time {clock}.")
    seen = state.get("seen", ids[:0])
    if len(seen) and not 0 <= int(seen.min()) <= int(seen.max()) <= LATEST:
        raise ValueError(
            f"the state of table {name!r} has rows that were pushed before time 0 or after time "
            f"{LATEST}."
        )
    if "pushes" in state and int(state["pushes"][0]) < 0:
        raise ValueError(f"the state of table {name!r} has {int(state['pushes'][0])} pushes.")
    return ids, clock
