"""ResNet-50 written by hand in PyTorch."""

import torch
from torch import nn


class Bottleneck(nn.Module):
    """1x1, 3x3, 1x1 convolutions around a shortcut."""

    def __init__(self, inside, planes, stride):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(inside, planes, 1, bias=False),
            nn.BatchNorm2d(planes),
            nn.ReLU(),
            nn.Conv2d(planes, planes, 3, stride, 1, bias=False),
            nn.BatchNorm2d(planes),
            nn.ReLU(),
            nn.Conv2d(planes, planes * 4, 1, bias=False),
            nn.BatchNorm2d(planes * 4),
        )
        self.shortcut = None
        if stride != 1 or inside != planes * 4:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inside, planes * 4, 1, stride, bias=False), nn.BatchNorm2d(planes * 4)
            )

    def forward(self, x):
        """Return the block's output."""
        rest = x if self.shortcut is None else self.shortcut(x)
        return torch.relu(self.body(x) + rest)


def resnet50():
    """Return the whole network."""
    layers = [
        nn.Conv2d(3, 64, 7, 2, 3, bias=False),
        nn.BatchNorm2d(64),
        nn.ReLU(),
        nn.MaxPool2d(3, 2, 1),
    ]
    inside = 64
    for planes, count, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for i in range(count):
            layers.append(Bottleneck(inside, planes, stride if i == 0 else 1))
            inside = planes * 4
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2048, 1000)]
    return nn.Sequential(*layers)
