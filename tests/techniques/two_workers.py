"""Two workers of LocalSGD, trained by hand in one process."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn

RATES = [0.125] * 3 + [0.0625] * 3 + [0.03125] * 6  # exact in any precision
STEPS = len(RATES)


class Worker:
    """One of two workers, trained by hand: parameters, velocities and moving statistics."""

    def __init__(self, rank: int, momentum: float, batch_norm: bool) -> None:
        data = np.random.default_rng(2)
        shapes = {"w1": (6, 8), "b1": (8,), "w2": (8, 3), "b2": (3,)}
        self.values = [
            torch.tensor(data.standard_normal(shape) * 0.5, requires_grad=True)
            for shape in shapes.values()
        ]
        self.norm = nn.BatchNorm1d(8, dtype=torch.float64) if batch_norm else None
        if self.norm:
            self.values += [self.norm.weight, self.norm.bias]
        self.velocities = [torch.zeros_like(p) for p in self.values]
        self.rank, self.momentum = rank, momentum
        self.batches = np.random.default_rng(1)
        self.waiting: list[Any] = []

    def step(self, rate: float, merged: int = 1) -> None:
        """Update with the mean gradient of every `merged` batches."""
        x, y = self.batches.standard_normal((8, 6)), self.batches.integers(0, 3, (8,))
        w1, b1, w2, b2 = self.values[:4]
        hidden = torch.tensor(x[self.rank :: 2]) @ w1 + b1
        hidden = torch.tanh(self.norm(hidden) if self.norm else hidden)
        target = torch.tensor(y[self.rank :: 2])
        loss = nn.functional.cross_entropy(hidden @ w2 + b2, target)
        self.waiting.append(torch.autograd.grad(loss, self.values))
        if len(self.waiting) < merged:
            return
        grads = [sum(rows) / merged for rows in zip(*self.waiting, strict=True)]
        self.waiting.clear()
        with torch.no_grad():
            for p, v, g in zip(self.values, self.velocities, grads, strict=True):
                v.mul_(self.momentum).add_(g)
                p.sub_(rate * v)

    def flat(self) -> np.ndarray:
        return torch.cat([p.detach().flatten() for p in self.values[:4]]).numpy().copy()
