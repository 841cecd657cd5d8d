"""Dense gradients of 100 MB: pushed to servers and pulled again, by all workers at once."""

import sys

import torch
from loop import serve
from torch import nn

from fleetx import fleet

torch.set_num_threads(1)
strategy = fleet.DistributedStrategy()
strategy.a_sync = False
fleet.init(strategy=strategy)
if fleet.is_server():
    fleet.init_server()
    fleet.run_server()
    sys.exit()
model = nn.ParameterList([nn.Parameter(torch.zeros(2_500_000)) for _ in range(10)])
optimizer = torch.optim.SGD(model.parameters(), 0.1)
fleet.distributed_model(model)
optimizer = fleet.distributed_optimizer(optimizer)
fleet.init_worker()
for parameter in model:
    parameter.grad = torch.ones_like(parameter)


def step(i):
    """One exchange."""
    optimizer.step()


serve(step, 1)
fleet.stop_worker()
