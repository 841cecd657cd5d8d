"""The same through Fleet's three lines. Arguments: the network, and the settings of the strategy
as JSON."""

import json
import sys

import small_nets
import torch
from group_loop import serve_group
from small_data import batches

from fleetx import fleet

torch.set_num_threads(1)
strategy = fleet.DistributedStrategy()
for name, value in json.loads(sys.argv[2] if len(sys.argv) > 2 else "{}").items():
    setattr(strategy, name, value)
fleet.init(is_collective=True, strategy=strategy)
model = fleet.distributed_model(getattr(small_nets, sys.argv[1])())
optimizer = fleet.distributed_optimizer(torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9))
data = batches(sys.argv[1], fleet.worker_index())


def step(i):
    """One training step."""
    loss = small_nets.loss_of(model, *data[i % len(data)])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.detach().numpy()


serve_group(step, 3, fleet.worker_index(), fleet.barrier_worker)
