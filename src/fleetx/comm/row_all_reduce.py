"""The sum over workers of gradients that consist of rows.

Every worker has a different number of rows, with its own ids. The workers exchange these numbers,
then ids and values, padded to the largest number: the bytes sent do not depend on the size of the
table.
"""

from __future__ import annotations

import torch
from torch import Tensor

from fleetx.comm import world
from fleetx.kernels.row_gradients import add_up, make_rows, merge


def all_reduce_rows(grad: Tensor, *, dtype: torch.dtype | None = None, ring_id: int = 0) -> Tensor:
    """Return the sum of all workers' rows, the same on all workers; values are sent as `dtype`."""
    if not world.is_connected():
        return grad
    ids, values = merge(grad)
    own = values.dtype
    counts = world.all_gather(torch.tensor([len(ids)]), ring_id)
    most = max(int(count) for count in counts)
    if not most:
        return grad
    filled_ids = ids.new_zeros(most)
    filled_ids[: len(ids)] = ids
    filled = values.new_zeros(most, *values.shape[1:], dtype=dtype or own)
    filled[: len(ids)] = values
    return add_up(
        [
            make_rows(each[:count], part[:count].to(own), len(grad))
            for count, each, part in zip(
                map(int, counts),
                world.all_gather(filled_ids, ring_id),
                world.all_gather(filled, ring_id),
                strict=True,
            )
        ]
    )
