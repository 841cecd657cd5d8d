"""The optimizer state that workers keep for different parameters, as one state and back.

`gather_state` returns what `state_dict` of the optimizer in a job of one worker would: files have
the same names and shapes at any number of workers, with sharding or without.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.optim import SGD, Adadelta, Adagrad, Adam, Adamax, NAdam, Optimizer, RAdam, RMSprop

from fleetx.comm.layout import Group
from fleetx.runtime import heartbeat
from fleetx.techniques.lamb import Lamb
from fleetx.techniques.lars import Lars


@dataclass(frozen=True)
class _Outline:
    """A tensor without its values."""

    shape: tuple[int, ...]
    dtype: torch.dtype


def gather_state(own: Mapping[str, Any], group: Group) -> dict[str, Any]:
    """Return the states that all workers of a group have of an optimizer as one; all must call
    it."""
    state: dict[int, Any] = {}
    for source in range(group.size):
        state.update(_broadcast(own["state"], group, source))
    return {**own, "state": dict(sorted(state.items()))}


def _broadcast(own: Mapping[int, Any], group: Group, source: int) -> dict[int, Any]:
    """Return the state of one worker: what is no tensor first, then tensor by tensor."""
    entries = [(i, key, value) for i, each in own.items() for key, value in each.items()]
    outlines: list[Any] = [[(i, key, _outline(value)) for i, key, value in entries]]
    with heartbeat.collective("optimizer state"):
        dist.broadcast_object_list(outlines, group.ranks[source], group.process_group)
    found: dict[int, Any] = {}
    for place, (i, key, value) in enumerate(outlines[0]):
        if isinstance(value, _Outline):
            is_own = group.rank == source
            tensor = entries[place][2] if is_own else torch.empty(value.shape, dtype=value.dtype)
            value = group.broadcast(tensor, source)
        found.setdefault(i, {})[key] = value
    return found


def _outline(value: Any) -> Any:
    return _Outline(tuple(value.shape), value.dtype) if isinstance(value, Tensor) else value


def part_of_state(
    optimizer: Optimizer, state: Mapping[str, Any], *, without: Iterable[Tensor]
) -> dict[str, Any]:
    """Return a whole state but for that of some parameters."""
    left_out = {id(p) for p in without}
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    kept = {i for i, p in enumerate(parameters) if id(p) not in left_out}
    part = {i: each for i, each in state["state"].items() if i in kept}
    return {**state, "state": part}


def state_copies(optimizer: Optimizer) -> int:
    """Return how many tensors of the size of a parameter an optimizer keeps for each; 0 if it keeps
    none, or if it is no optimizer of torch."""
    group = optimizer.param_groups[0]
    if isinstance(optimizer, Adam | NAdam | RAdam | Adamax | Lamb):
        return 3 if group.get("amsgrad") else 2
    if isinstance(optimizer, RMSprop):
        return 1 + bool(group["momentum"]) + bool(group["centered"])
    if isinstance(optimizer, SGD):
        return int(bool(group["momentum"]))
    if isinstance(optimizer, Adadelta):
        return 2
    return int(isinstance(optimizer, Adagrad | Lars))
