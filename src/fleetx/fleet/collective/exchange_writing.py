"""Writing the exchange of gradients of a stage into a program, as one op in front of the update."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from fleetx.static.operator import OpRole
from fleetx.static.ops.exchange_op import EXCHANGE
from fleetx.static.optimizer import Optimizer
from fleetx.static.program import default_main_program, default_startup_program
from fleetx.static.variable import Variable
from fleetx.step.compression import CompressedSync
from fleetx.step.program_step import ProgramStep


@contextmanager
def exchanging(step: ProgramStep) -> Iterator[None]:
    """Let `minimize` write the exchange of the step's stage, if it has one."""
    if step.grad_sync is None:
        yield
        return
    name, optimizer = step.grad_sync_by[0], step.updates
    if not isinstance(optimizer, Optimizer):
        raise ValueError(
            f"{name} exchanges gradients in front of the update of a plain optimizer, not of a "
            f"{type(optimizer).__name__}: give the plain one to fleet.distributed_optimizer."
        )
    if not isinstance(step.grad_sync, CompressedSync):
        raise TypeError(
            f"{name} put a {type(step.grad_sync).__name__} into the step of a program, but only a "
            "CompressedSync can be run there: write change_program for it."
        )
    before = optimizer.gradient_hooks
    optimizer.gradient_hooks = (*before, partial(_append_exchange, step, step.grad_sync))
    try:
        yield
    finally:
        optimizer.gradient_hooks = before


def _append_exchange(
    step: ProgramStep, stage: CompressedSync, pairs: Sequence[tuple[Any, Any]]
) -> None:
    technique, settings = step.grad_sync_by
    pairs = [(param, grad) for param, grad in pairs if grad is not None]
    states = [
        _create_state(key, param)
        for param, _ in pairs
        for key in stage.compressor.state_names(param.name)
    ]
    grads, kept = [grad.name for _, grad in pairs], [var.name for var in states]
    default_main_program().current_block().append_op(
        type=EXCHANGE,
        inputs={"Grad": grads, "State": kept},
        outputs={"GradOut": grads, "StateOut": kept},
        attrs={
            "technique": technique,
            "settings": settings,
            "params": [param.name for param, _ in pairs],
            "state_names": kept,
            "op_role": OpRole.Backward,
        },
    )


def _create_state(name: str, param: Any) -> Variable:
    """Return a persistable variable shaped like a parameter, which the startup program zeroes."""
    settings = {"name": name, "shape": param.shape, "dtype": param.dtype, "persistable": True}
    startup = default_startup_program().global_block()
    startup.append_op(
        type="fill_constant",
        outputs={"Out": [startup.create_var(**settings)]},
        attrs={"shape": list(param.shape), "dtype": param.dtype, "value": 0.0},
    )
    made: Variable = default_main_program().global_block().create_var(**settings)
    made.stop_gradient = True
    return made
