"""Data parallelism with Fleet. Arguments: the network, and the settings of the strategy as JSON."""

import sys

import small_nets
import torch
from group_loop import serve_group, strategy_of
from small_data import batches
from torch_step import training_step

from fleetx import fleet

torch.set_num_threads(1)
fleet.init(is_collective=True, strategy=strategy_of(fleet))
model = fleet.distributed_model(getattr(small_nets, sys.argv[1])())
optimizer = fleet.distributed_optimizer(torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9))
data = batches(sys.argv[1], fleet.worker_index())
step = training_step(lambda i: small_nets.loss_of(model, *data[i % len(data)]), optimizer)
serve_group(step, 3, fleet.worker_index(), fleet.barrier_worker)
