"""The deep residual network as a program. Arguments: `plain` or `fleet` (the strategy's recompute);
`memory` to measure the peak."""

import sys

import torch
from deep_net import BLOCKS, INNER, WIDTH, X, give_back_at_once
from loop import peak_mb, serve

from fleetx import fleet, static
from fleetx.static import layers

torch.set_num_threads(1)
if "memory" in sys.argv:
    give_back_at_once()
before = peak_mb()
fleet.init(is_collective=True)
hidden, kept = layers.data("x", [WIDTH]), []
for _ in range(BLOCKS):
    wide = layers.fc(layers.layer_norm(hidden), INNER, act="gelu")
    hidden = hidden + layers.fc(wide, WIDTH)
    kept.append(hidden)
loss = layers.mean(hidden * hidden)
strategy = fleet.DistributedStrategy()
if sys.argv[1] == "fleet":
    strategy.recompute = True
    strategy.recompute_configs = {"checkpoints": kept}
fleet.distributed_optimizer(static.optimizer.SGD(0.001), strategy).minimize(loss)
exe = static.Executor()
exe.run(static.default_startup_program())


def step(i):
    """One training step."""
    return exe.run(feed={"x": X}, fetch_list=[loss])


serve(step, 2, before_mb=before)
