"""Training with a parameter server, in eager PyTorch or (`static`) as a program. Arguments: KIND
STEPS."""

import sys

import numpy as np
import torch
from torch import nn

from fleetx import fleet, static
from fleetx.static import layers

KIND, STEPS = sys.argv[1], int(sys.argv[2])
strategy = fleet.DistributedStrategy()
strategy.a_sync = False
fleet.init(strategy=strategy)

if KIND == "static":
    x = static.data("x", [None, 4], "float32")
    loss = layers.mean(layers.square(layers.fc(x, size=1)))
    optimizer = fleet.distributed_optimizer(static.optimizer.SGD(0.01), strategy)
    optimizer.minimize(loss)
else:
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

if fleet.is_server():
    fleet.init_server()
    fleet.run_server()
    sys.exit()

if KIND == "static":
    exe = static.Executor()
    fleet.init_worker()
    exe.run(fleet.startup_program)
    for _ in range(STEPS):
        exe.run(fleet.main_program, feed={"x": np.ones((6, 4), "float32")}, fetch_list=[])
else:
    fleet.init_worker()
    model = fleet.distributed_model(model)
    optimizer = fleet.distributed_optimizer(optimizer, strategy)
    for _ in range(STEPS):
        optimizer.minimize(model(torch.ones(6, 4)).pow(2).mean())
fleet.stop_worker()
