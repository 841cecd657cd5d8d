"""A training job in which worker 1 has more to do: it multiplies matrices before every forward
pass, SLOW times. Arguments: STEPS SLOW [strategy switch]; DIE_AT kills worker 0 at a step."""

import os
import signal
import sys

import torch
from torch import nn

from fleetx import fleet, monitor

STEPS, SLOW = int(sys.argv[1]), int(sys.argv[2])
strategy = fleet.DistributedStrategy()
if len(sys.argv) > 3:
    setattr(strategy, sys.argv[3], True)
fleet.init(is_collective=True, strategy=strategy)
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
model = fleet.distributed_model(model)
optimizer = fleet.distributed_optimizer(optimizer)
batches = [torch.randn(8 + fleet.worker_index(), 16) for _ in range(STEPS)]
big = torch.randn(256, 256)

for number, batch in enumerate(monitor.watch(batches), 1):
    if fleet.worker_index() == 1:
        for _ in range(SLOW):
            big = torch.tanh(big @ big)
    if number == int(os.environ.get("DIE_AT", "0")) and fleet.worker_index() == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    loss = model(batch).pow(2).mean()
    optimizer.minimize(loss)
    optimizer.clear_grad()
