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
_ATTRS: dict[str, Any] = {
    "technique": "",
    "settings": "{}",
    "params": Attr("STRINGS", []),
    "state_names": Attr("STRINGS", []),
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


@op(
    EXCHANGE,
    inputs="Grad* State*?",
    outputs="GradOut* StateOut*?",
    attrs=_ATTRS,
    grad=None,
    infer=infer_inplace,
    inplace={"StateOut": "State"},
    side_effect=True,
)
def exchange_gradients(
    grads: list[Tensor],
    states: list[Tensor],
    *,
    technique: str,
    settings: str,
    params: list[str],
    state_names: list[str],
) -> tuple[list[Tensor], list[Tensor]]:
    """Average gradients over workers by a step's grad_sync."""
    stage = _made(technique, settings).grad_sync
    state = dict(zip(state_names, states, strict=True))
    means = stage.mean(dict(zip(params, grads, strict=True)), state)
    return [means[name] for name in params], states


@op(
    CLIP,
    inputs="Grad* Param* State*?",
    outputs="GradOut* StateOut*?",
    attrs=_ATTRS,
    grad=None,
    infer=infer_inplace,
    inplace={"StateOut": "State"},
    side_effect=True,
)
def clip_gradients(
    grads: list[Tensor],
    values: list[Tensor],
    states: list[Tensor],
    *,
    technique: str,
    settings: str,
    params: list[str],
    state_names: list[str],
) -> tuple[list[Tensor], list[Tensor]]:
    """Change gradients by a step's clip, a function of parameters."""
    clip = _made(technique, settings).clip
    views = {
        name: value.detach().requires_grad_() for name, value in zip(params, values, strict=True)
    }
    for view, grad in zip(views.values(), grads, strict=True):
        view.grad = grad.clone()
    with torch.no_grad():
        if state_names:
            clip.clip(views, dict(zip(state_names, states, strict=True)))
        else:
            clip(views)
    found = [torch.zeros_like(v) if v.grad is None else v.grad for v in views.values()]
    return found, states


@op(
    SYNC,
    inputs="Param* State*?",
    outputs="ParamOut* StateOut*?",
    attrs=_ATTRS,
    grad=None,
    infer=infer_inplace,
    inplace={"ParamOut": "Param", "StateOut": "State"},
    side_effect=True,
)
def sync_parameters(
    values: list[Tensor],
    states: list[Tensor],
    *,
    technique: str,
    settings: str,
    params: list[str],
    state_names: list[str],
) -> tuple[list[Tensor], list[Tensor]]:
    """Change parameters by a step's param_sync."""
    stage = _made(technique, settings).param_sync
    named = dict(zip(params, values, strict=True))
    new = stage.sync(named, dict(zip(state_names, states, strict=True)))
    for name, value in new.items():
        named[name].copy_(value)
    return values, states
