"""Trains a line with `CPUTrainer`, with parameter servers."""

from types import SimpleNamespace

import numpy as np

import fleetx as X
from fleetx import fleet, static

fleet.init()
x = static.data("x", [None, 2], "float32")
y = static.data("y", [None, 1], "float32")
loss = static.layers.mean(static.layers.square_error_cost(static.layers.fc(x, 1), y))
strategy = fleet.DistributedStrategy()
strategy.a_sync = False
fleet.distributed_optimizer(static.optimizer.SGD(0.05), strategy).minimize(loss)
model = SimpleNamespace(loss=loss, main_prog=static.default_main_program())


def batches():
    """Give the same batch in four steps."""
    for _ in range(4):
        yield {"x": np.full((2, 2), 0.5, "float32"), "y": np.ones((2, 1), "float32")}


if fleet.is_server():
    fleet.init_server()
    fleet.run_server()
else:
    X.CPUTrainer().fit(model, batches, epoch=2, start_step=1)
