"""ResNet-50 written by hand in eager PyTorch: 224x224, batch 8, Momentum."""

import torch
from loop import peak_mb, serve
from resnet_net import resnet50
from torch import nn
from torch_step import training_step

torch.set_num_threads(1)

before = peak_mb()
model = resnet50()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
generator = torch.Generator().manual_seed(0)
images = torch.randn(8, 3, 224, 224, generator=generator).numpy()
labels = torch.randint(0, 1000, (8, 1), generator=generator).numpy()


def loss_of(i):
    """Return the loss of the batch."""
    logits = model(torch.from_numpy(images))
    return nn.functional.cross_entropy(logits, torch.from_numpy(labels).view(-1))


serve(training_step(loss_of, optimizer), 1, before_mb=before)
