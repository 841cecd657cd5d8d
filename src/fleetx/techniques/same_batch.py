"""Check that workers that divide one copy of a model get the same batch. At the first forward
pass, a mismatch raises an error on all of them.
"""

from __future__ import annotations

import zlib
from typing import Any

import torch
from torch import nn

from fleetx.comm.layout import Group
from fleetx.techniques.tensors_inside import all_tensors


def check_same_batch(model: nn.Module, group: Group) -> None:
    """Compare what the first forward pass gets on the workers of a group."""

    def compare(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        handle.remove()
        compare_batches((args, kwargs), group)

    handle = model.register_forward_pre_hook(compare, with_kwargs=True, prepend=True)


def compare_batches(values: Any, group: Group) -> None:
    """Raise ValueError on all workers of a group if they have different tensors."""
    own = torch.tensor(checksum(values))
    found = [int(each) for each in group.all_gather(own)]
    different = [rank for rank, each in zip(group.ranks, found, strict=True) if each != found[0]]
    if different:
        raise ValueError(
            f"workers {', '.join(map(str, group.ranks))} divide one copy of the model, but worker "
            f"{different[0]} got another batch than worker {group.ranks[0]}: choose a worker's "
            "samples by fleet.data_index() of fleet.data_num(), not by fleet.worker_index()."
        )


def checksum(values: Any) -> int:
    """Return a number that tells whether the tensors in nested values are the same."""
    total = 0
    for tensor in all_tensors(values):
        data = tensor.detach().cpu().contiguous().flatten().view(torch.uint8)
        total = zlib.crc32(data.numpy().tobytes(), total)
    return total
