"""A model that trains with a parameter server; worker 1 is given NaN in its third step."""

import math

import torch

from fleetx import fleet

strategy = fleet.DistributedStrategy()
strategy.a_sync = False
strategy.stop_on_nan = True
fleet.init(strategy=strategy)
if fleet.is_server():
    fleet.init_server()
    fleet.run_server()
else:
    model = torch.nn.Linear(3, 1)
    fleet.init_worker()
    model = fleet.distributed_model(model)
    optimizer = fleet.distributed_optimizer(torch.optim.SGD(model.parameters(), lr=0.1))
    for step in range(1, 6):
        is_bad = step == 3 and fleet.worker_index() == 1
        optimizer.zero_grad()
        model(torch.full((2, 3), math.nan if is_bad else 1.0)).sum().backward()
        optimizer.step()
    fleet.stop_worker()
