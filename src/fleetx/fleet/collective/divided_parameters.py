"""Rules for program parameters of which every worker has its own part (`split`).

Their gradients are complete without a sum over workers, and their values stay where they are.
Updates that need a whole parameter, or all gradients of a model, are rejected.
"""

from __future__ import annotations

from typing import Any

from fleetx.static.clip import GradientClipByValue
from fleetx.static.graph.program import Program
from fleetx.static.optimizer import Optimizer
from fleetx.static.optimizer.gradient_merge_optimizer import SUFFIX
from fleetx.step.gradient_sync import is_all_reduce
from fleetx.step.program_step import ProgramStep, WrittenUpdate

_BY_ELEMENT = frozenset(
    {"sgd", "momentum", "adam", "adamw", "adamax", "adadelta", "adagrad", "decayed_adagrad"}
    | {"rmsprop", "ftrl"}
)
"""Updates of an element that depend on this element of the gradient and of the state alone."""


def divided_parameters(program: Program) -> list[str]:
    """Return the names of the parameters of which every worker has its own part."""
    return [param.name for param in program.all_parameters() if param.is_distributed]


def check_step(step: ProgramStep, program: Program, *, is_elastic: bool) -> None:
    """Reject a step that treats parts of parameters as whole ones."""
    names = divided_parameters(program)
    if not names:
        return
    clips = [param.gradient_clip_attr for param in program.all_parameters()]
    owners = {slot: step.owner(slot) for slot in ("precision", "clip", "param_sync", "guard")}
    if not is_all_reduce(step.grad_sync):
        owners["grad_sync"] = step.owner("grad_sync")
    for owner in owners.values():
        if owner is not None:
            raise ValueError(
                f"every worker has a part of {names[0]!r} (split()), and {owner.name} works on "
                f"whole parameters: switch off {owner.name}, or write the layer without split()."
            )
    if is_elastic:
        raise ValueError(
            f"every worker has a part of {names[0]!r} (split()), which is lost with a worker of an "
            "elastic job: start the job without --elastic, or write the layer without split()."
        )
    if not isinstance(step.update, Optimizer):
        raise ValueError(
            f"every worker has a part of {names[0]!r} (split()), and {type(step.update).__name__} "
            "may work on whole parameters: give fleet.distributed_optimizer the plain optimizer."
        )
    for clip in (step.update.grad_clip, *clips):
        if clip is not None and not isinstance(clip, GradientClipByValue):
            raise ValueError(
                f"every worker has a part of {names[0]!r} (split()), and {type(clip).__name__} "
                "needs the norm of whole gradients: clip by value, or write the layer without "
                "split()."
            )


def own_variables(written: WrittenUpdate) -> set[str]:
    """Return the divided parameters with their sums of gradients and optimizer state; refuse
    updates that need whole parameters."""
    names = divided_parameters(written.main)
    found = {*names, *(name + SUFFIX for name in names)}
    for op in written.updates:
        if op.input("Param")[0] not in names:
            continue
        if op.type not in _BY_ELEMENT:
            raise ValueError(
                f"every worker has a part of {op.input('Param')[0]!r} (split()), and the update "
                f"{op.type!r} looks at whole parameters: use an optimizer such as Momentum or Adam."
            )
        found.update(_state(op))
    return found


def _state(op: Any) -> set[str]:
    return {name for slot in op.output_names for name in op.output(slot)}
