"""A deep residual network in eager PyTorch. Arguments: `plain`, `hand` (torch.utils.checkpoint
written into the model) or `fleet` (the strategy's recompute); `memory` to measure the peak."""

import sys

import torch
from deep_net import BLOCKS, INNER, WIDTH, X, give_back_at_once
from loop import peak_mb, serve
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch_step import training_step

KIND = sys.argv[1]
torch.set_num_threads(1)
if KIND == "fleet":
    from fleetx import fleet

    strategy = fleet.DistributedStrategy()
    strategy.recompute = True
    strategy.recompute_configs = {"checkpoints": ["Block"]}
    fleet.init(is_collective=True, strategy=strategy)


class Block(nn.Module):
    """Normalise, widen, narrow, add."""

    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.wide, self.narrow = nn.Linear(WIDTH, INNER), nn.Linear(INNER, WIDTH)

    def forward(self, x):
        """Return the block's output."""
        return x + self.narrow(nn.functional.gelu(self.wide(self.norm(x))))


class Net(nn.Module):
    """Blocks one after another; the loss is the mean of squares."""

    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(BLOCKS))

    def forward(self, x):
        """Return the loss."""
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if KIND == "hand" else block(x)
        return (x * x).mean()


if "memory" in sys.argv:
    give_back_at_once()
before = peak_mb()
torch.manual_seed(0)
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
if KIND == "fleet":
    model = fleet.distributed_model(model)
    optimizer = fleet.distributed_optimizer(optimizer)
serve(training_step(lambda i: model(torch.from_numpy(X)), optimizer), 2, before_mb=before)
