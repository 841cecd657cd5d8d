"""A PyTorch script with the three changed lines; writes losses and parameters of rank 0 as JSON."""

import json
import sys

import torch
from torch import nn

from fleetx import fleet

options = json.loads(sys.argv[1])
torch.set_default_dtype(torch.float64)
strategy = fleet.DistributedStrategy()
for name, value in options.get("strategy", {}).items():
    setattr(strategy, name, value)
fleet.init(is_collective=True, strategy=strategy)
torch.manual_seed(7 + fleet.worker_index())  # different everywhere: rank 0's parameters must win
model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 3))
if not options.get("batch_norm"):
    model[1] = nn.Identity()
if fleet.worker_num() == 1:
    torch.manual_seed(7)
    model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 3))
    if not options.get("batch_norm"):
        model[1] = nn.Identity()
model = fleet.distributed_model(model)
kinds = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
    "adam": lambda p: torch.optim.Adam(p, lr=0.05),
}
optimizer = fleet.distributed_optimizer(kinds[options["optimizer"]](model.parameters()))
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=3, gamma=0.5)
data = torch.Generator().manual_seed(1)
losses = []
for _ in range(6):
    x = torch.randn(8, 6, generator=data)
    y = torch.randint(0, 3, (8,), generator=data)
    share = slice(fleet.worker_index(), None, fleet.worker_num())
    loss = nn.functional.cross_entropy(model(x[share]), y[share])
    if options.get("minimize"):
        optimizer.minimize(loss)
    else:
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    scheduler.step()
    losses.append(float(fleet.util.all_reduce(loss.item())) / fleet.worker_num())
if fleet.is_first_worker():
    state = {
        k: v.flatten().tolist() for k, v in model.state_dict().items() if v.is_floating_point()
    }
    with open(options["out"], "w") as file:
        json.dump({"losses": losses, "state": state, "lr": optimizer.get_lr()}, file)
