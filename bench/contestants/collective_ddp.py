"""Data parallelism by hand: DistributedDataParallel on Gloo. Argument: the network."""

import sys

import small_nets
import torch
import torch.distributed as dist
from group_loop import serve_group
from small_data import batches
from torch.nn.parallel import DistributedDataParallel

torch.set_num_threads(1)
dist.init_process_group("gloo")
network = getattr(small_nets, sys.argv[1])()
model = DistributedDataParallel(network, gradient_as_bucket_view=True)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
data = batches(sys.argv[1], dist.get_rank())


def step(i):
    """One training step."""
    loss = small_nets.loss_of(model, *data[i % len(data)])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.detach().numpy()


serve_group(step, 3, dist.get_rank(), dist.barrier)
dist.destroy_process_group()
