"""The networks of the collective benchmark in PyTorch, and their data."""

import numpy as np
import torch
from torch import nn

BATCH = 16


class Block(nn.Module):
    """Two 3x3 convolutions around a shortcut."""

    def __init__(self, inside, planes, stride):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(inside, planes, 3, stride, 1, bias=False),
            nn.BatchNorm2d(planes),
            nn.ReLU(),
            nn.Conv2d(planes, planes, 3, 1, 1, bias=False),
            nn.BatchNorm2d(planes),
        )
        self.shortcut = None
        if stride != 1 or inside != planes:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inside, planes, 1, stride, bias=False), nn.BatchNorm2d(planes)
            )

    def forward(self, x):
        """Return the block's output."""
        return torch.relu(self.body(x) + (x if self.shortcut is None else self.shortcut(x)))


def resnet18():
    """ResNet-18 with its usual stem, for 32x32 images."""
    layers = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU()]
    layers.append(nn.MaxPool2d(3, 2, 1))
    inside = 64
    for planes, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        layers += [Block(inside, planes, stride), Block(planes, planes, 1)]
        inside = planes
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10))


def mlp():
    """The documents' first network."""
    return nn.Sequential(
        nn.Linear(32, 128), nn.Tanh(), nn.Linear(128, 128), nn.Tanh(), nn.Linear(128, 2)
    )


def batches(net, rank):
    """Return a few batches (arrays) for a network; each worker has its own."""
    rng = np.random.default_rng(rank)
    shape, classes = ((BATCH, 3, 32, 32), 10) if net == "resnet18" else ((128, 32), 2)
    return [
        (
            rng.standard_normal(shape, dtype=np.float32),
            rng.integers(0, classes, (shape[0], 1)),
        )
        for _ in range(8)
    ]
