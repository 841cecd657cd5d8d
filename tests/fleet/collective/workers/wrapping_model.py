"""The model of `wrapping.py` and steps with it."""

import os

import torch
from torch import nn

from fleetx import comm
from fleetx.fleet import DistributedStrategy
from fleetx.fleet.session import Fleet

RANK = int(os.environ.get("PADDLE_TRAINER_ID", "0"))
fleet = Fleet()


class Net(nn.Module):
    """Two layers, a number that forward reads, and a method beside forward."""

    def __init__(self, dtype=torch.float32):
        super().__init__()
        self.first = nn.Linear(3, 4, dtype=dtype)
        self.second = nn.Linear(4, 1, dtype=dtype)
        self.norm = nn.BatchNorm1d(4, dtype=dtype)
        self.dim = 4
        self.temperature = 1.0
        self.skips = False

    def forward(self, x):
        hidden = self.norm(torch.tanh(self.first(x)))
        if self.skips:
            return hidden.sum() / self.temperature
        return self.second(hidden).sum() / self.temperature

    def encode(self, x):
        return self.first(x).sum()


def begin(**switches):
    strategy = DistributedStrategy()
    for name, value in switches.items():
        setattr(strategy, name, value)
    fleet.init(is_collective=True, strategy=strategy, timeout_seconds=60)
    torch.manual_seed(5 + RANK)
    return Net()


def sgd(model, lr=0.1, kind=torch.optim.SGD):
    return fleet.distributed_optimizer(kind(model.parameters(), lr=lr))


def batch():
    return torch.randn(6, 3, generator=torch.Generator().manual_seed(RANK))


def spread(model):
    """Return how far the workers' parameters are apart."""
    flat = nn.utils.parameters_to_vector(model.parameters()).detach()
    parts = comm.all_gather(flat)
    return float((parts[0] - parts[1]).abs().max())


def wrapped_step(model, optimizer):
    optimizer.zero_grad()
    model(batch()).backward()
    optimizer.step()


def train(model, optimizer, steps=3):
    for _ in range(steps):
        wrapped_step(model, optimizer)
