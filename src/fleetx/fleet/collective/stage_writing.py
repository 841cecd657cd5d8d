"""Writing stages on named tensors into a program, each as one op that runs it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import torch

from fleetx.static.clip import GradientClipBase
from fleetx.static.graph.default_programs import (
    default_main_program,
    default_startup_program,
    program_guard,
)
from fleetx.static.graph.dtypes import convert_dtype, is_floating, to_torch
from fleetx.static.graph.operator import OpRole
from fleetx.static.layers.control_flow import ConditionalBlock
from fleetx.static.ops.stage_ops import CLIP, EXCHANGE, SYNC
from fleetx.static.optimizer import Optimizer
from fleetx.static.optimizer.gradient_merge_optimizer import CONDITION
from fleetx.static.optimizer.wrapped_optimizer import Pairs
from fleetx.step.named_stages import NamedExchange, NamedParameterSync
from fleetx.step.program_step import (
    ProgramParameterSync,
    ProgramStep,
    WrittenClip,
    WrittenUpdate,
)
from fleetx.step.technique import Technique


def check_stages(step: ProgramStep) -> None:
    """Reject stages that cannot act before the update of the step's optimizer."""
    acts = {
        "grad_sync": isinstance(step.grad_sync.innermost(), NamedExchange),
        "clip": step.clip is not None,
    }
    name = type(step.update).__name__
    for slot in (slot for slot, is_there in acts.items() if is_there):
        owner = _owner(step, slot).name
        if not isinstance(step.update, Optimizer):
            raise ValueError(
                f"{owner} changes gradients before the update of a plain optimizer, not of a "
                f"{name}: give the plain one to fleet.distributed_optimizer."
            )
        if step.update.exchanges_gradients:
            raise ValueError(
                f"{owner} changes gradients before the update, but the {name} exchanges "
                f"gradients and updates at once: switch off {owner}, or use another optimizer."
            )
        if slot == "clip" and step.update.grad_clip is not None:
            raise ValueError(
                f"the {name} has a grad_clip, and the strategy switches on {owner}, which clips "
                "too: remove one of them."
            )


def write_exchange(step: ProgramStep, pairs: Pairs) -> None:
    """Append the exchange of gradients, if an op runs it."""
    stage = step.grad_sync.innermost()
    if isinstance(stage, NamedExchange):
        params, grads = _sorted(pairs)
        _append(step, "grad_sync", EXCHANGE, stage, params, {"Grad": grads}, OpRole.Backward)


def write_clip(step: ProgramStep, pairs: Pairs) -> Any:
    """Append the clip of gradients, if an op runs it; return the optimizer that is to update."""
    if step.clip is None:
        return step.update
    clip = step.clip.as_ops() if isinstance(step.clip, WrittenClip) else step.clip
    if isinstance(clip, GradientClipBase):
        return step.update.with_grad_clip(clip)  # the script's own stays as it is
    params, grads = _sorted(pairs)
    slots = {"Grad": grads, "Param": [p.name for p in params]}
    _append(step, "clip", CLIP, step.clip, params, slots, OpRole.Optimize)
    return step.update


def write_parameter_sync(step: ProgramStep, written: WrittenUpdate) -> None:
    """Append the exchange of parameters after the updates."""
    stage = step.param_sync
    if isinstance(stage, ProgramParameterSync):
        stage.write(written)
    if not isinstance(stage, NamedParameterSync):
        return
    main = written.main
    made = {name for block in main.blocks for op in block.ops for name in op.output_arg_names}
    params = [p for p in main.all_parameters() if p.name in made and is_floating(p.dtype)]
    slots = {"Param": [p.name for p in params]}
    arguments = (step, "param_sync", SYNC, stage, params, slots, OpRole.Optimize)
    with program_guard(main, written.startup), main.optimized_guard([]):
        condition = main.global_block().vars.get(CONDITION)
        if condition is None:
            _append(*arguments)
        else:
            with ConditionalBlock([condition], is_scalar_condition=True).block():
                _append(*arguments)


def _owner(step: ProgramStep, slot: str) -> Technique[Any]:
    owner = step.owner(slot)
    assert owner is not None
    return owner


def _sorted(pairs: Pairs) -> tuple[list[Any], list[str]]:
    found = sorted((pair for pair in pairs if pair[1] is not None), key=lambda pair: pair[0].name)
    return [param for param, _ in found], [grad.name for _, grad in found]


def _append(
    step: ProgramStep,
    slot: str,
    kind: str,
    stage: Any,
    params: Sequence[Any],
    inputs: dict[str, list[str]],
    role: int,
) -> None:
    """Append the op that runs a stage, and create its state."""
    owner = _owner(step, slot)
    like = {
        param.name: torch.empty(param.shape, dtype=to_torch(param.dtype), device="meta")
        for param in params
    }
    first = stage.first_state(like) if hasattr(stage, "first_state") else {}
    kept = [_create_state(key, value) for key, value in first.items()]
    changed = next(iter(inputs))
    default_main_program().current_block().append_op(
        type=kind,
        inputs={**inputs, "State": kept},
        outputs={f"{changed}Out": inputs[changed], "StateOut": kept},
        attrs={
            "technique": owner.name,
            "settings": json.dumps(asdict(owner.config)),
            "params": [param.name for param in params],
            "state_names": kept,
            "op_role": role,
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
