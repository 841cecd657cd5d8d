"""Train with a custom technique, composed with amp and gradient_merge.

fleetrun --nproc_per_node 2 examples/own_technique/train.py
"""

import torch
from eight_bits import EightBits
from torch import nn

from fleetx import fleet

fleet.register(EightBits)
strategy = fleet.DistributedStrategy()
strategy.eight_bits = True
strategy.amp = True
strategy.gradient_merge = True
strategy.gradient_merge_configs = {"k_steps": 2}
fleet.init(is_collective=True, strategy=strategy)

torch.manual_seed(1)
model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 1))
model = fleet.distributed_model(model)
optimizer = fleet.distributed_optimizer(torch.optim.Adam(model.parameters(), lr=1e-2))
if fleet.is_first_worker():
    fleet.explain()

torch.manual_seed(fleet.worker_index())
for step in range(200):
    inputs = torch.randn(64, 16)
    loss = (model(inputs) - inputs.sum(1, keepdim=True)).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    if step % 50 == 49 and fleet.is_first_worker():
        print(f"step {step + 1}: loss {loss.item():.4f}")
