"""The settings that all workers must share: script, strategy, model and optimizer, as text.

Workers compare them before they train together (`comm.agreement`). Settings of a single process,
such as the number of threads, may differ.
"""

from __future__ import annotations

import hashlib
import sys
from math import prod
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from fleetx.comm.divided_tensors import shape_elsewhere
from fleetx.fleet.collective.observing import wants_timeline
from fleetx.fleet.strategy.distributed_strategy import DistributedStrategy
from fleetx.runtime import environment

_OWN_AFFAIRS = {
    "strategy.execution_strategy.num_threads",
    "strategy.execution_strategy.num_iteration_per_drop_scope",
    "strategy.cudnn_exhaustive_search",
    "strategy.cudnn_batchnorm_spatial_persistent",
    "strategy.conv_workspace_size_limit",
}
# Implementations of the same update, which may depend on the device.
_OWN_KERNELS = {"params", "foreach", "fused", "capturable"}
_PLAIN = (bool, int, float, str, type(None))


def what_was_asked(call: str, strategy: Any) -> dict[str, str]:
    """Return the settings that must be equal on all workers when they reach `call`."""
    script = Path(sys.argv[0] if sys.argv else "")
    asked = {"the call": call, "the script": script.name}
    if script.is_file():
        content = hashlib.sha256(script.read_bytes()).hexdigest()[:12]
        asked["the content of the script (checksum)"] = content
    if wants_timeline():  # workers with a timeline compare their clocks first
        asked["FLEETX_TIMELINE"] = "set"
    if environment.progress_switch() == "1":  # the default of stop_on_nan
        asked["FLEETX_PROGRESS"] = "1"
    settings = settings_of(strategy)
    return asked | {name: text for name, text in settings.items() if name not in _OWN_AFFAIRS}


def settings_of(strategy: Any) -> dict[str, str]:
    """Return all settings of a strategy as text, by names such as 'strategy.amp_configs.dtype'."""
    return _settings("strategy", strategy)


def what_is_trained(model: nn.Module) -> dict[str, str]:
    """Return what must be equal in all workers' models: names, types, shapes, frozen parameters."""
    parameters = dict(model.named_parameters())
    found = {"the number of parameters": str(len(parameters))}
    for name, p in parameters.items():
        frozen = "" if p.requires_grad else ", frozen"
        found[f"parameter {name!r}"] = _kind(p) + frozen
    for name, buffer in model.named_buffers():
        found[f"buffer {name!r}"] = _kind(buffer)
    return {**found, "the order of parameters (checksum)": _checksum(*parameters)}


def how_it_is_trained(optimizer: torch.optim.Optimizer) -> dict[str, str]:
    """Return what must be equal in all workers' optimizers: class, groups and their settings."""
    groups = optimizer.param_groups
    kind = type(optimizer)
    found = {
        "the optimizer": f"{kind.__module__}.{kind.__qualname__}",
        "the number of parameter groups": str(len(groups)),
    }
    for number, group in enumerate(groups):
        kinds = [_kind(p) for p in group["params"]]
        whole = [shape_elsewhere(p) for p in group["params"] if not is_lazy(p)]
        elements = sum(map(prod, whole))
        where = f"of parameter group {number}"
        found[f"the size {where}"] = f"{len(kinds)} tensors with {elements} elements"
        found[f"the shapes {where} (checksum)"] = _checksum(*kinds)
        for key in sorted(set(group) - _OWN_KERNELS):
            found[f"{key} {where}"] = _text(group[key])
    return found


def _kind(tensor: torch.Tensor) -> str:
    """Return a tensor's type and shape."""
    if is_lazy(tensor):
        return "not initialised"
    return f"{str(tensor.dtype).removeprefix('torch.')} {list(shape_elsewhere(tensor))}"


def _checksum(*texts: str) -> str:
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:12]


def _settings(name: str, value: Any) -> dict[str, str]:
    """Return the settings in a strategy, flat: 'strategy.amp_configs.use_pure_fp16' and so on."""
    if isinstance(value, DistributedStrategy):
        state = value.__getstate__()
        value = {**state["values"], **state["configs"]}
    if isinstance(value, dict):
        return {k: v for key in value for k, v in _settings(f"{name}.{key}", value[key]).items()}
    return {name: _text(value)}


def _text(value: Any) -> str:
    if isinstance(value, _PLAIN):
        return repr(value)
    if isinstance(value, torch.Tensor):
        return repr(value.tolist())
    if isinstance(value, list | tuple):
        return f"[{', '.join(_text(item) for item in value)}]"
    return str(getattr(value, "name", type(value).__name__))  # a variable, or an object
