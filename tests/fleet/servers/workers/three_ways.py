"""Training with techniques: with servers, by all-reduce, or alone. Arguments: KIND OUTPUT."""

import sys

import numpy as np
import torch
from torch import nn

from fleetx import fleet

KIND, OUTPUT = sys.argv[1:]
strategy = fleet.DistributedStrategy()
strategy.a_sync = False
strategy.recompute = True
strategy.recompute_configs = {"checkpoints": ["hidden"]}
strategy.gradient_clip = True
strategy.gradient_clip_configs = {"norm": 0.05}
if KIND != "alone":
    strategy.gradient_merge = True
    strategy.gradient_merge_configs = {"k_steps": 2}
fleet.init(is_collective=KIND == "all-reduce", strategy=strategy)
if fleet.is_server():
    fleet.init_server()
    fleet.run_server()
    sys.exit()


class Net(nn.Module):
    """Dense layers on an embedding that becomes rows on servers."""

    def __init__(self) -> None:
        super().__init__()
        self.ids = nn.Embedding(12, 3, sparse=True)
        self.hidden = nn.Sequential(nn.Linear(3, 5), nn.Tanh())
        self.out = nn.Linear(5, 1)

    def forward(self, ids):
        return self.out(self.hidden(self.ids(ids)))


torch.manual_seed(3)
net = Net().double()
fleet.init_worker()
model = fleet.distributed_model(net)
optimizer = fleet.distributed_optimizer(torch.optim.SGD(net.parameters(), lr=0.5))
samples = torch.Generator().manual_seed(1)
for _ in range(3):  # updates
    ids = torch.randint(0, 12, (2, 2, 4), generator=samples)  # by step and worker
    labels = torch.rand(2, 2, 4, 1, generator=samples, dtype=torch.float64)
    parts = [(ids.flatten(), labels.view(-1, 1))]
    if KIND != "alone":
        parts = [
            (ids[step, fleet.worker_index()], labels[step, fleet.worker_index()]) for step in (0, 1)
        ]
    for x, y in parts:
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
with torch.no_grad():
    found = {name: p.numpy() for name, p in net.named_parameters() if "ids" not in name}
    found["rows"] = net.ids(torch.arange(12)).numpy()
np.savez(f"{OUTPUT}.{fleet.worker_index()}.npz", **found)
fleet.stop_worker()
