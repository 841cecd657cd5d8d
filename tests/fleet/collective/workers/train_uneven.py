"""Rank r trains on 2 + r batches per epoch; every rank writes its state as JSON."""

import json
import os
import sys
from contextlib import nullcontext

import torch
from torch import nn

from fleetx import fleet

options = json.loads(sys.argv[1])
torch.manual_seed(3)
fleet.init(is_collective=True)
model = fleet.distributed_model(nn.Linear(4, 2))
optimizer = fleet.distributed_optimizer(torch.optim.Adam(model.parameters(), lr=0.1))
data = torch.Generator().manual_seed(fleet.worker_index())
for _ in range(2):
    with fleet.join(model) if options["join"] else nullcontext():
        for _ in range(2 + fleet.worker_index()):
            loss = model(torch.randn(3, 4, generator=data)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    if not options["join"]:
        os._exit(0)  # as a script that is through: without a word to the others
    # An even step afterwards: it is equal everywhere only if the optimizers' states are.
    model(torch.ones(3, 4)).square().mean().backward()
    optimizer.step()
state = {name: value.tolist() for name, value in model.state_dict().items()}
steps = [float(s["step"]) for s in optimizer.state_dict()["state"].values()]
with open(f"{options['out']}.{fleet.worker_index()}", "w") as file:
    json.dump({"state": state, "steps": steps}, file)
