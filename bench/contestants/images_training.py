"""ResNet-50 trained on ImageNet photographs: how long it waits for them."""

import sys
import time

import torch
from loop import tell
from resnet_net import resnet50
from torch import nn

from fleetx.data.imagenet import ImageNet

root, steps, threads = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
torch.set_num_threads(threads)
torch.manual_seed(0)
model = resnet50()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
loader = ImageNet(root, "train", batch_size=8).loader(num_workers=2)
waited = began = 0.0
batches = iter(loader)
for step in range(steps + 1):
    asked = time.perf_counter()
    images, labels = next(batches)
    got = time.perf_counter()
    if step == 0:
        began = got  # the processes have started, and the first batch has arrived
    else:
        waited += got - asked
    loss = nn.functional.cross_entropy(model(images), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
tell(waited=waited, seconds=time.perf_counter() - began)
