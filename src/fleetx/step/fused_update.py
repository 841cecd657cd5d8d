"""Use torch's fused optimizers where the script sets neither `fused` nor `foreach`.

`torch.optim.Adam(parameters)` updates the parameters one by one on CPUs; with `fused=True` the same
update takes a third of the time. Torch does not select it automatically. A script that sets
`fused=...` or `foreach=...` keeps its setting.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.optim import SGD, Adagrad, Adam, AdamW, Optimizer

from fleetx import torch_private
from fleetx.comm.divided_tensors import is_divided

_WITH_KERNEL = (SGD, Adam, AdamW, Adagrad)
_OF_PARTS = (Adam, AdamW)
"""Optimizers whose fused kernels torch also calls for sharded tensors (DTensor)."""
_DTYPES = (torch.float32, torch.float64)


def fuse_update(optimizer: Optimizer) -> None:
    """Make this optimizer's steps use its fused kernel, if it has one and the script allows it."""
    if type(optimizer) not in _WITH_KERNEL or optimizer.defaults.get("differentiable"):
        return
    # Hooks, and not a wrapper: a gradient scaler calls the optimizer's own step.
    if not torch_private.has_step_pre_hook(optimizer, _choose):
        optimizer.register_step_pre_hook(_choose)
        optimizer.register_step_post_hook(_leave_open)


def _choose(optimizer: Optimizer, args: Any, kwargs: Any) -> None:
    for group in optimizer.param_groups:
        # A step that raised has left `fused` set.
        if group.get("_open") or (group.get("fused") is None and group.get("foreach") is None):
            group["_open"] = True
            fits = all(_fits(p, optimizer.state.get(p)) for p in group["params"])
            if type(optimizer) not in _OF_PARTS and group["params"]:
                fits = fits and not is_divided(group["params"][0])  # all are, or none
            group["fused"] = True if fits else None  # False would rule out foreach kernels too


def _leave_open(optimizer: Optimizer, args: Any, kwargs: Any) -> None:
    """Reset `fused`, so that no saved state contains it."""
    for group in optimizer.param_groups:
        if group.pop("_open", False):
            group["fused"] = None


def _fits(parameter: torch.Tensor, state: dict[str, Any] | None) -> bool:
    """Return whether the kernel is correct for a parameter.

    It iterates over the memory of parameter, gradient and state in parallel, without checking that
    their layouts agree. On devices other than the CPU torch's default is fast, and the kernel needs
    step counters on the device, while a saved state may have them on the CPU.
    """
    gradient = parameter.grad
    if gradient is None:
        return True
    if (
        parameter.device.type != "cpu"
        or gradient.layout is not torch.strided
        or parameter.dtype not in _DTYPES
        or gradient.dtype is not parameter.dtype
    ):
        return False
    strides = parameter.stride()
    if len(strides) > 1 and state:
        for value in state.values():
            if isinstance(value, torch.Tensor) and value.dim() and value.stride() != strides:
                return False
    return gradient.stride() == strides
