"""Writing the exchange of gradients of a stage into a program, as one op in front of the update."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch

from fleetx.static.graph.dtypes import convert_dtype, to_torch
from fleetx.static.graph.operator import OpRole
from fleetx.static.graph.program import default_main_program, default_startup_program
from fleetx.static.ops.exchange_op import EXCHANGE
from fleetx.static.optimizer import Optimizer
from fleetx.step.named_exchange import NamedExchange
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
    if not isinstance(step.grad_sync, NamedExchange):
        raise TypeError(
            f"the technique {name} put a {type(step.grad_sync).__name__} into the step of a "
            "program, where only a NamedExchange, such as CompressedSync, can run: write "
            "change_program for it, or train a module."
        )
    before = optimizer.gradient_hooks
    optimizer.gradient_hooks = (*before, partial(_append_exchange, step, step.grad_sync))
    try:
        yield
    finally:
        optimizer.gradient_hooks = before


def _append_exchange(
    step: ProgramStep, stage: NamedExchange, pairs: Sequence[tuple[Any, Any]]
) -> None:
    technique, settings = step.grad_sync_by
    pairs = [(param, grad) for param, grad in pairs if grad is not None]
    like = {
        param.name: torch.empty(param.shape, dtype=to_torch(param.dtype), device="meta")
        for param, _ in pairs
    }
    kept = [_create_state(key, first) for key, first in stage.first_state(like).items()]
    grads = [grad.name for _, grad in pairs]
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


def _create_state(name: str, first: torch.Tensor) -> str:
    """Create a persistable variable, which the startup program zeroes; return its name."""
    shape, dtype = list(first.shape), convert_dtype(first.dtype)
    settings = {"name": name, "shape": shape, "dtype": dtype, "persistable": True}
    startup = default_startup_program().global_block()
    startup.append_op(
        type="fill_constant",
        outputs={"Out": [startup.create_var(**settings)]},
        attrs={"shape": shape, "dtype": dtype, "value": 0.0},
    )
    default_main_program().global_block().create_var(**settings).stop_gradient = True
    return name
