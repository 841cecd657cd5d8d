"""The networks of the collective benchmark in PyTorch."""

import torch
from small_data import BERT_WORDS
from torch import nn


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


def wide():
    """An MLP with much to send and little to compute: 17 MB."""
    layers = []
    for _ in range(4):
        layers += [nn.Linear(1024, 1024), nn.Tanh()]
    return nn.Sequential(*layers, nn.Linear(1024, 2))


def bert():
    """A small BERT of the transformers library."""
    # Imported late: it takes seconds, and only this network needs it.
    from transformers import BertConfig, BertForSequenceClassification

    config = BertConfig(
        vocab_size=BERT_WORDS,
        hidden_size=256,
        num_hidden_layers=4,
        num_attention_heads=4,
        intermediate_size=1024,
        max_position_embeddings=64,
    )
    return BertForSequenceClassification(config)


def loss_of(model, x, y):
    """Return the loss of a batch of arrays."""
    out = model(torch.from_numpy(x))
    logits = out if isinstance(out, torch.Tensor) else out.logits
    return nn.functional.cross_entropy(logits, torch.from_numpy(y).view(-1))
