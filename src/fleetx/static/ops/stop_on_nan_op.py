"""stop_on_nan: an op after the update that ends the run when parameters stop being numbers.

At that point parameters are equal on all workers, so all of them stop in the same run without
communication; only then do they exchange whose loss was the first that was not finite.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from fleetx import comm
from fleetx.kernels.loss_scale import all_finite
from fleetx.static.errors import NotFiniteError
from fleetx.static.graph.op_registry import effect_op
from fleetx.static.ops.optimizer_ops import infer_inplace

ADVICE = (
    "and strategy.stop_on_nan is on: look at that step's data and at the learning rate, clip the "
    "gradients, or switch it off to go on."
)


def nearest_to_loss(names: Sequence[str], finite: Sequence[bool]) -> str:
    """Return which of the parameters that are not finite to name: the last, for a backward pass
    comes to it first and carries the NaN on to those before it."""
    return [name for name, good in zip(names, finite, strict=True) if not good][-1]


@effect_op(
    "stop_on_nan",
    inputs="Loss Param* Counts Due*?",
    outputs="CountsOut=Counts",
    infer=infer_inplace,
)
def stop_on_nan(
    loss: Tensor,
    parameters: list[Tensor],
    counts: Tensor,
    due: list[Tensor],
    *,
    names: Any,
    first_worker: int = 0,
) -> Tensor:
    """Raise NotFiniteError if a parameter is infinite or NaN.

    `Counts` holds the number of runs and the first run whose loss was not finite. `Due` are two
    numbers that are equal in the runs in which parameters are equal on all workers. `first_worker`
    is the rank at which the search begins: this worker's, if it trains with servers.
    """
    counts[0] += 1
    if not counts[1] and not bool(loss.isfinite().all()):
        counts[1] = counts[0]
    if due and int(due[0]) != int(due[1]):
        return counts
    if all_finite(parameters):
        return counts
    name = nearest_to_loss(names["inputs"]["Param"], [all_finite([p]) for p in parameters])
    firsts = [int(each) for each in comm.all_gather(counts[1:].cpu())]
    run = int(counts[0])
    counts.zero_()
    losses = [(first, rank) for rank, first in enumerate(firsts, first_worker) if first]
    if losses:
        step, rank = min(losses)
        raise NotFiniteError(
            f"the loss became infinite or NaN in step {step} on worker {rank} and with it "
            f"parameter {name!r} in step {run}, {ADVICE}"
        )
    where = " of all workers together" if len(firsts) > 1 else ""
    raise NotFiniteError(
        f"the gradient of {name!r}{where} became infinite or NaN in step {run}, although no loss "
        f"was, {ADVICE}"
    )
