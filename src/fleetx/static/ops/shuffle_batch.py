"""The op that permutes the rows of a batch, in the order that Paddle gives them for a seed.

Paddle shuffles with C++'s minimal standard generator (`kernels/minstd.py`) and hands the next
number over as the seed of the following batch.
"""

from __future__ import annotations

from torch import Tensor

from fleetx.kernels.minstd import RAND0, MinimalStandard
from fleetx.static.graph.dtypes import VarType
from fleetx.static.graph.op_registry import op
from fleetx.static.shapes.infer_rules import shapes
from fleetx.static.shapes.lod import as_tensor


def shuffled(count: int, seed: int) -> tuple[list[int], int]:
    """Return a permutation of `count` numbers, and the seed of the next one."""
    draw = MinimalStandard(seed, RAND0)
    order = list(range(count))
    for last in range(1, count):
        place = draw.up_to(last)
        order[last], order[place] = order[place], order[last]
    return order, draw()


@op(
    "shuffle_batch",
    inputs="X Seed!",
    outputs="Out ShuffleIdx SeedOut",
    infer=shapes(
        "X",
        lambda op, x: {
            "Out": (x.shape, x.dtype),
            "ShuffleIdx": ((-1,), VarType.INT64),
            "SeedOut": ((1,), VarType.INT64),
        },
    ),
    random=True,
)
def shuffle_batch(
    x: Tensor, seed: Tensor | None, *, startup_seed: int = 0
) -> tuple[Tensor, Tensor, Tensor]:
    """Move row i to place `index[i]`; dimensions before the last one are rows."""
    rows = x.reshape(-1, x.shape[-1])
    start = startup_seed if seed is None else int(seed.reshape(-1)[0])
    order, following = shuffled(len(rows), start)
    index = as_tensor(order, x.device)
    out = rows[index.argsort()].reshape(x.shape)
    return out, index, as_tensor([following], x.device)
