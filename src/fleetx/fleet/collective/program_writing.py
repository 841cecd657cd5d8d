"""Writing a whole training step into a program: backward, exchange, update, by the techniques."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from fleetx import comm
from fleetx.fleet.collective.data_parallel_program import (
    insert_all_reduce,
    insert_broadcast,
    use_sync_batch_norm,
)
from fleetx.fleet.collective.exchange_writing import exchanging
from fleetx.fleet.collective.explain import Explanation, explain, program_sizes
from fleetx.static.graph.program import Program
from fleetx.static.io.variables import is_persistable
from fleetx.step.compose import compose_program
from fleetx.step.program_step import ParameterAverage, ProgramStep
from fleetx.step.technique import Job, Technique


@dataclass
class CollectivePrograms:
    """The programs of a collective training job."""

    main: Any  # with communication
    origin: Program  # as the optimizer left it, without
    startup: Program
    explanation: Explanation
    parameter_average: ParameterAverage | None = None


def write_step(
    optimizer: Any,
    loss: Any,
    startup: Program,
    job: Job,
    techniques: Sequence[Technique],
    **more: Any,
) -> tuple[Any, CollectivePrograms]:
    """Append a whole training step to the program of a loss; return what `minimize` returns, and
    the programs."""
    main, strategy = loss.block.program, job.strategy
    rings = max(1, strategy.nccl_comm_num)
    step = ProgramStep(optimizer, None)
    if job.workers > 1:
        step.starts = partial(_start_equal, rings=rings)
    if job.workers > 1 and not getattr(optimizer, "exchanges_gradients", False):
        step.synchronise = partial(insert_all_reduce, workers=job.workers, rings=rings)
        if comm.is_connected():
            step.exchange = job.exchange()
    compose_program(step, techniques)
    with exchanging(step):
        result = step.optimizer.minimize(loss, startup_program=startup, **more)
    origin = main.clone()
    if step.synchronise is not None:
        step.synchronise(main, result[1])
    for append in step.after_update:
        append(main, startup, loss)
    if step.starts is not None:
        step.starts(startup)
        if strategy.sync_batch_norm:
            use_sync_batch_norm(main)
        main.binding.gradient_exchange = step.exchange
    explanation = explain(job, techniques, program_sizes(main), type(optimizer).__name__)
    programs = CollectivePrograms(main, origin, startup, explanation, step.parameter_average)
    return result, programs


def _start_equal(startup: Program, rings: int) -> None:
    """Write the broadcast of rank 0's values; readers belong to each worker."""
    names = [v.name for v in startup.global_block().vars.values() if is_persistable(v)]
    insert_broadcast(startup, names, rings)
