"""Ops that run the stages of techniques that have no ops of their own.

An op carries the technique's name and settings; it runs the technique's own stage, which `provide`
gives it from above. State is in persistable variables, so that it is saved with the program's
others.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor

from fleetx.static.errors import ExecutionError
from fleetx.static.graph.op_registry import Attr, op
from fleetx.static.ops.optimizer_ops import infer_inplace

EXCHANGE, CLIP, SYNC = "exchange_gradients", "clip_gradients", "sync_parameters"
_COMMON: dict[str, Any] = {
    "attrs": {
        "technique": "",
        "settings": "{}",
        "params": Attr("STRINGS", []),
        "state_names": Attr("STRINGS", []),
    },
    "grad": None,
    "infer": infer_inplace,
    "side_effect": True,
}
_makers: dict[str, Callable[[str], Any]] = {}


def provide(technique: str, make: Callable[[str], Any]) -> None:
    """Set how the step of a technique is made from its settings (JSON)."""
    _makers[technique] = make
    _made.cache_clear()


@cache
def _made(technique: str, settings: str) -> Any:
    if technique not in _makers:
        raise ExecutionError(
            f"this program runs a stage of {technique!r}, which is not registered here: import the "
            "package that has it, or call fleet.register, before running the program."
        )
    return _makers[technique](settings)


def _read(attrs: dict[str, Any], states: list[Tensor]) -> tuple[Any, list[str], dict[str, Tensor]]:
    """Return the step that has the stage, the names of the parameters, and the state by name."""
    step = _made(attrs["technique"], attrs["settings"])
    return step, attrs["params"], dict(zip(attrs["state_names"], states, strict=True))


@op(EXCHANGE, inputs="Grad* State*?", outputs="GradOut* StateOut*?=State", **_COMMON)
def exchange_gradients(
    grads: list[Tensor], states: list[Tensor], **attrs: Any
) -> tuple[list[Tensor], list[Tensor]]:
    """Average gradients over workers by a step's grad_sync."""
    step, params, state = _read(attrs, states)
    means = step.grad_sync.mean(dict(zip(params, grads, strict=True)), state)
    return [means[name] for name in params], states


@op(CLIP, inputs="Grad* Param* State*?", outputs="GradOut* StateOut*?=State", **_COMMON)
def clip_gradients(
    grads: list[Tensor], values: list[Tensor], states: list[Tensor], **attrs: Any
) -> tuple[list[Tensor], list[Tensor]]:
    """Change gradients by a step's clip, a function of parameters."""
    step, params, state = _read(attrs, states)
    views = {}
    for name, value, grad in zip(params, values, grads, strict=True):
        views[name] = value.detach().requires_grad_()
        views[name].grad = grad.clone()
    with torch.no_grad():
        if hasattr(step.clip, "clip"):
            step.clip.clip(views, state)
        else:
            step.clip(views)
    return [torch.zeros_like(v) if v.grad is None else v.grad for v in views.values()], states


@op(SYNC, inputs="Param* State*?", outputs="ParamOut*=Param StateOut*?=State", **_COMMON)
def sync_parameters(
    values: list[Tensor], states: list[Tensor], **attrs: Any
) -> tuple[list[Tensor], list[Tensor]]:
    """Change parameters by a step's param_sync."""
    step, params, state = _read(attrs, states)
    named = dict(zip(params, values, strict=True))
    for name, value in step.param_sync.sync(named, state).items():
        named[name].copy_(value)
    return values, states
