"""Data parallelism by hand: DistributedDataParallel on Gloo. Argument: the network."""

import sys

import small_nets
import torch
import torch.distributed as dist
from group_loop import serve_group
from torch import nn

torch.set_num_threads(1)
dist.init_process_group("gloo")
model = nn.parallel.DistributedDataParallel(
    getattr(small_nets, sys.argv[1])(), gradient_as_bucket_view=True
)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
data = small_nets.batches(sys.argv[1], dist.get_rank())


def step(i):
    """One training step."""
    x, y = data[i % len(data)]
    loss = nn.functional.cross_entropy(model(torch.from_numpy(x)), torch.from_numpy(y).view(-1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.detach().numpy()


serve_group(step, 3)
