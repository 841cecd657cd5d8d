"""LocalSGD with averages in the background on two workers, case by case; every worker writes the
parameters it had after each step as JSON."""

import json
import sys
from pathlib import Path

import numpy as np
import torch
from torch import nn

from fleetx import fleet

folder = Path(sys.argv[1])
torch.set_default_dtype(torch.float64)
cases = json.loads((folder / "cases.json").read_text())
RATES = [0.125] * 3 + [0.0625] * 3 + [0.03125] * 6


class Net(nn.Module):
    def __init__(self, batch_norm):
        super().__init__()
        data = np.random.default_rng(2)
        shapes = {"w1": (6, 8), "b1": (8,), "w2": (8, 3), "b2": (3,)}
        for name, shape in shapes.items():
            setattr(self, name, nn.Parameter(torch.tensor(data.standard_normal(shape) * 0.5)))
        self.norm = nn.BatchNorm1d(8) if batch_norm else nn.Identity()

    def forward(self, x):
        hidden = torch.tanh(self.norm(x @ self.w1 + self.b1))
        return hidden @ self.w2 + self.b2


def make(case):
    strategy = fleet.DistributedStrategy()
    name = case.get("technique", "localsgd")
    setattr(strategy, name, True)
    setattr(strategy, f"{name}_configs", case["settings"])
    for switch in case.get("also", ()):
        setattr(strategy, switch, True)
    fleet.init(is_collective=True, strategy=strategy)
    net = fleet.distributed_model(Net(case.get("batch_norm")))
    inner = torch.optim.SGD(net.parameters(), lr=9.0, momentum=case.get("momentum", 0.0))
    return net, fleet.distributed_optimizer(inner)


def train(case, breaks_at=None):
    net, optimizer = make(case)
    data = np.random.default_rng(1)
    record = {"values": [], "intervals": [], "statistics": []}
    for i, rate in enumerate(RATES):
        if i == breaks_at:
            fleet.save_checkpoint(str(folder / "checkpoints"), model=net, optimizer=optimizer)
            net, optimizer = make(case)
            fleet.load_checkpoint(str(folder / "checkpoints"), model=net, optimizer=optimizer)
        x, y = data.standard_normal((8, 6)), data.integers(0, 3, (8,))
        share = slice(fleet.worker_index(), None, 2)
        optimizer.set_lr(rate)
        loss = nn.functional.cross_entropy(net(torch.tensor(x[share])), torch.tensor(y[share]))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step(loss=loss)
        if i + 1 == case.get("synchronized_at"):
            fleet.synchronize_model()
        values = [p.flatten() for p in (net.w1, net.b1, net.w2, net.b2)]
        record["values"].append(torch.cat(values).tolist())
        record["intervals"].append(optimizer.train_step.param_sync.k_steps)
        if case.get("batch_norm"):
            norm = net.norm
            record["statistics"].append(torch.cat([norm.running_mean, norm.running_var]).tolist())
    return record


result = {"trained": {}, "again": {}}
for name, case in cases.items():
    result["trained"][name] = train(case)
    if case.get("breaks_at"):
        result["again"][name] = train(case, case["breaks_at"])
(folder / f"{fleet.worker_index()}.json").write_text(json.dumps(result))
