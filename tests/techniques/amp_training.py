"""Models and batches that tests of amp train."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from fleetx import fleet


def begin(model: nn.Module, amp: dict[str, Any] | None, **other: Any) -> tuple[Any, Any]:
    strategy = fleet.DistributedStrategy()
    if amp is not None:
        strategy.amp = True
        strategy.amp_configs = amp
    for name, value in other.items():
        setattr(strategy, name, value)
    fleet.init(is_collective=True, strategy=strategy)
    inner = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    return fleet.distributed_model(model), fleet.distributed_optimizer(inner)


def network(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 4))


def batch(step: int) -> tuple[torch.Tensor, torch.Tensor]:
    data = torch.Generator().manual_seed(step)
    x = torch.randn(16, 8, generator=data)
    return x, (x[:, 0] > 0).long()
