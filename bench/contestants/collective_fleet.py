"""The same through Fleet's three lines. Argument: the network."""

import sys

import small_nets
import torch
from group_loop import serve_group
from torch import nn

from fleetx import fleet

torch.set_num_threads(1)
fleet.init(is_collective=True)
model = fleet.distributed_model(getattr(small_nets, sys.argv[1])())
optimizer = fleet.distributed_optimizer(torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9))
data = small_nets.batches(sys.argv[1], fleet.worker_index())


def step(i):
    """One training step."""
    x, y = data[i % len(data)]
    loss = nn.functional.cross_entropy(model(torch.from_numpy(x)), torch.from_numpy(y).view(-1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.detach().numpy()


serve_group(step, 3)
