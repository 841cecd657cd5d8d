"""Hand-written data parallelism: DistributedDataParallel on Gloo. Argument: the network."""

import sys

import small_nets
import torch
import torch.distributed as dist
from group_loop import serve_group
from small_data import batches
from torch.nn.parallel import DistributedDataParallel
from torch_step import training_step

torch.set_num_threads(1)
dist.init_process_group("gloo")
network = getattr(small_nets, sys.argv[1])()
model = DistributedDataParallel(network, gradient_as_bucket_view=True)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
data = batches(sys.argv[1], dist.get_rank())
step = training_step(lambda i: small_nets.loss_of(model, *data[i % len(data)]), optimizer)
serve_group(step, 3, dist.get_rank(), dist.barrier)
dist.destroy_process_group()
