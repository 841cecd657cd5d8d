"""Writing a whole training step into a program, slot by slot."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fleetx import comm
from fleetx.comm.gradient_all_reduce import GradientExchange
from fleetx.fleet.collective.data_parallel_program import (
    insert_all_reduce,
    insert_broadcast,
    scale_loss_gradient,
    use_sync_batch_norm,
)
from fleetx.fleet.collective.divided_parameters import check_step, own_variables
from fleetx.fleet.collective.explain import Explanation, explain, program_sizes
from fleetx.fleet.collective.stage_writing import (
    check_stages,
    write_clip,
    write_exchange,
    write_parameter_sync,
)
from fleetx.static.graph.default_programs import (
    default_main_program,
    default_startup_program,
    program_guard,
)
from fleetx.static.graph.program import Program
from fleetx.static.io.variables import is_persistable
from fleetx.static.optimizer.wrapped_optimizer import Pairs, ProgramStage
from fleetx.step.compose import compose_program
from fleetx.step.gradient_sync import is_all_reduce
from fleetx.step.named_stages import NamedExchange
from fleetx.step.program_step import ProgramParameterSync, ProgramStep, WrittenUpdate
from fleetx.step.technique import Job, Technique


@dataclass
class CollectivePrograms:
    """The programs of a collective training job."""

    main: Any  # with communication
    origin: Program  # as the optimizer left it, without
    startup: Program
    explanation: Explanation
    param_sync: ProgramParameterSync
    averages: bool = False
    """Whether the exchange of gradients divides by the number of workers itself (dgc, …)."""


def write_step(
    optimizer: Any,
    loss: Any,
    startup: Program,
    job: Job,
    techniques: Sequence[Technique],
    weight: str | None = None,
    **more: Any,
) -> tuple[Any, CollectivePrograms]:
    """Append a whole training step to the program of a loss; return what `minimize` returns, and
    the programs.

    In an elastic job `weight` names the variable with a worker's weight in averages: the group does
    not exist yet, and parameters are broadcast when it is formed.
    """
    main, strategy = loss.block.program, job.strategy
    rings = max(1, strategy.nccl_comm_num)
    step = compose_program(ProgramStep(optimizer), techniques)
    check_stages(step)
    check_step(step, main, is_elastic=weight is not None)
    with program_guard(main, startup):
        scaled = step.memory.write_loss(step.precision.write_loss(loss))
    pairs = step.update.backward(scaled, startup, **more, **step.memory.backward_settings())
    with program_guard(main, startup):
        updates, written = _write_updates(step, loss, pairs)
    apart = own_variables(written)
    origin = main.clone()
    sums = job.workers > 1 and is_all_reduce(step.grad_sync)
    if sums:
        merged = written.block if isinstance(step.grad_sync, ProgramStage) else None
        insert_all_reduce(main, pairs, job.workers, rings, merged, weight)
    inner = step.grad_sync.innermost()
    averages = isinstance(inner, NamedExchange)
    averages = averages or getattr(step.update, "exchanges_gradients", False)
    if weight is not None and averages:
        scale_loss_gradient(main, job.workers, weight)
    write_parameter_sync(step, written)
    if step.guard is not None:
        step.guard.write(step, written)
    if weight is not None:
        main.binding.gradient_exchange = _exchange_of(step) or job.exchange()
    elif job.workers > 1 and step.starts_equal:
        names = [v.name for v in startup.global_block().vars.values() if is_persistable(v)]
        own = apart.union(getattr(step.param_sync, "own", ()))
        insert_broadcast(startup, [name for name in names if name not in own], rings)
        if strategy.sync_batch_norm:
            use_sync_batch_norm(main)
        connected = sums and comm.is_connected()
        exchange = job.exchange("dp", "sharding") if connected else None
        main.binding.gradient_exchange = exchange or _exchange_of(step)
    explanation = explain(job, techniques, program_sizes(main), type(optimizer).__name__)
    sync = step.param_sync
    if not isinstance(sync, ProgramParameterSync):
        sync = ProgramParameterSync()  # an op runs it, and parameters stay equal
    programs = CollectivePrograms(main, origin, startup, explanation, sync, averages)
    return (updates, pairs), programs


def _exchange_of(step: ProgramStep) -> GradientExchange | None:
    """Return how the sums of the parameter exchange are communicated."""
    return getattr(step.param_sync, "exchange", None)


def _write_updates(step: ProgramStep, loss: Any, pairs: Pairs) -> tuple[list[Any], WrittenUpdate]:
    """Append the ops that follow the backward pass, updates included; return the updates."""
    main, startup = default_main_program(), default_startup_program()
    merge = step.grad_sync if isinstance(step.grad_sync, ProgramStage) else ProgramStage()
    with merge.updating(pairs) as merged, step.precision.updating(merged) as usable:
        write_exchange(step, usable)
        update = write_clip(step, usable)
        block = main.current_block()
        start = len(block.ops)
        updates = update.apply_gradients(usable)
        end = len(block.ops)
    return updates, WrittenUpdate(main, startup, loss, usable, block, start, end)
