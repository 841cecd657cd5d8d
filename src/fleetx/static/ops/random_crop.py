"""random_crop: pieces of instances, at places that follow from a seed.

Places are drawn as Paddle's CPU kernel draws them (`kernels/minstd.py`): a seed gives the same
pieces, and the seed that the op returns continues the sequence in the next run.
"""

from __future__ import annotations

import torch
from torch import Tensor

from fleetx.kernels.minstd import RAND, MinimalStandard
from fleetx.static.graph.op_registry import op


@op("random_crop", inputs="X Seed?!", outputs="Out SeedOut?", random=True)
def random_crop(
    x: Tensor, seed: Tensor | None, *, shape: list[int] = [], startup_seed: int = 0
) -> tuple[Tensor, Tensor]:
    """Cut a piece of the given shape out of each instance, at a random place of its own.

    `startup_seed` is used in the first run, in which Seed has no value.
    """
    lead = x.dim() - len(shape)
    sizes = x.shape[lead:]
    room = [have - want for have, want in zip(sizes, shape, strict=True)]
    if any(r < 0 for r in room):
        raise ValueError(f"cannot cut {shape} out of instances of shape {tuple(sizes)}.")
    out_shape = (*x.shape[:lead], *shape)
    if x.is_meta:
        return x.new_empty(out_shape), x.new_empty([1], dtype=torch.int64)
    first = startup_seed if seed is None else int(seed.reshape(-1)[0])
    pieces = []
    for number, row in enumerate(x.reshape(-1, *sizes)):
        draw = MinimalStandard(first, RAND, skip=number * len(shape))
        for axis, (space, want) in enumerate(zip(room, shape, strict=True)):
            row = row.narrow(axis, draw.up_to(space), want)
        pieces.append(row)
    out = torch.stack(pieces) if pieces else x.new_empty(out_shape)
    following = MinimalStandard(first, RAND, skip=len(pieces) * len(shape))()
    return out.reshape(out_shape), torch.tensor([following], device=x.device)
