"""Optimizers of PyTorch as specifications of tables: the same update, on servers.

A parameter group becomes the settings of a dense table's blocks; rows have optimizers of their own,
which correspond to SGD, Adagrad, Adam and SparseAdam.
"""

from __future__ import annotations

from typing import Any

import torch

from fleetx.ps.tables.table_spec import TORCH_OPTIMIZERS, ClipSpec, OptimizerSpec
from fleetx.techniques.lamb import Lamb
from fleetx.techniques.lars import Lars

Group = dict[str, Any]


def dense_optimizer(
    optimizer: torch.optim.Optimizer, group: Group, clip: ClipSpec | None = None
) -> OptimizerSpec:
    """Return the update of a group's table, without the settings of its blocks."""
    if isinstance(optimizer, Lars):
        kind = "lars_momentum"
    elif isinstance(optimizer, Lamb):
        kind = "lamb"
    else:
        name = type(optimizer).__name__
        if name not in TORCH_OPTIMIZERS:
            raise TypeError(
                f"parameter servers do not know the optimizer {name}: use "
                f"torch.optim.{', '.join(TORCH_OPTIMIZERS)}, or strategy.lars or strategy.lamb."
            )
        kind = f"torch.{name}"
    settings = {}
    if isinstance(optimizer, torch.optim.Adagrad):
        # The one setting that torch takes from the constructor only, not from groups.
        settings["initial_accumulator_value"] = float(group["initial_accumulator_value"])
    return OptimizerSpec(kind=kind, rate=float(group["lr"]), settings=settings, clip=clip)


def block_settings(
    optimizer: torch.optim.Optimizer, group: Group, parameter: torch.Tensor
) -> dict[str, Any]:
    """Return the fields of a parameter's block: settings of the optimizer and penalties."""
    if isinstance(optimizer, Lars):
        excluded = optimizer._is_excluded(parameter, group)
        settings = {
            "mu": float(group["momentum"]),
            "lars_coeff": float(group["lars_coeff"]),
            "lars_weight_decay": 0.0 if excluded else float(group["lars_weight_decay"]),
            "epsilon": float(group["epsilon"]),
        }
        return {"settings": settings, "l2": float(group["weight_decay"])}
    if isinstance(optimizer, Lamb):
        excluded = optimizer._is_excluded(parameter, group)
        settings = {
            "beta1": float(group["betas"][0]),
            "beta2": float(group["betas"][1]),
            "epsilon": float(group["eps"]),
            "weight_decay": 0.0 if excluded else float(group["lamb_weight_decay"]),
            "always_adapt": True,  # with the correction of the bias
        }
        return {"settings": settings, "l2": float(group["weight_decay"])}
    settings = {}
    for name, value in group.items():
        if name == "betas":
            settings["beta1"], settings["beta2"] = (float(beta) for beta in value)
        elif name in optimizer.defaults and name != "lr":
            settings[name] = float(value) if isinstance(value, torch.Tensor) else value
    return {"settings": settings}


def row_optimizer(optimizer: torch.optim.Optimizer) -> OptimizerSpec | None:
    """Return the update of rows that corresponds to an optimizer; None if there is none."""
    group = optimizer.param_groups[0]
    rate = float(group["lr"])
    if group.get("maximize"):
        return None
    decay = float(group.get("weight_decay", 0.0))
    match type(optimizer).__name__:
        case "SGD" if not group["momentum"]:
            return OptimizerSpec(kind="sgd", rate=rate, l2=decay)
        case "Adagrad" if not group["lr_decay"]:
            settings = {
                "epsilon": float(group["eps"]),
                "initial_accumulator_value": float(group["initial_accumulator_value"]),
            }
            return OptimizerSpec(kind="adagrad", rate=rate, settings=settings, l2=decay)
        case "Adam" | "SparseAdam" if not group.get("amsgrad"):
            settings = {
                "beta1": float(group["betas"][0]),
                "beta2": float(group["betas"][1]),
                "epsilon": float(group["eps"]),
                "scale_epsilon": True,
            }
            return OptimizerSpec(kind="adam", rate=rate, settings=settings, l2=decay)
    return None
