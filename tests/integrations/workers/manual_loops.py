"""Train by manual optimization in Lightning, with its own DDP and through Fleet; write what came.

    manual_loops.py FOLDER

One optimizer with the whole loss, and two with a loss each, whose backward passes run inside the
training step.
"""

import json
import os
import sys
import warnings
from pathlib import Path

import lightning.pytorch as pl
import torch
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from fleetx import fleet
from fleetx.integrations import FleetStrategy


class Module(pl.LightningModule):
    """Two networks, the second of which imitates the first."""

    def __init__(self, optimizers):
        super().__init__()
        self.automatic_optimization = False
        torch.manual_seed(2)
        self.networks = nn.ModuleList([nn.Linear(4, 1), nn.Linear(4, 1)]).double()
        self.count = optimizers

    def training_step(self, batch, index):
        first, second = (network(batch[0]) for network in self.networks)
        losses = [first.square().mean(), (second - first.detach()).square().mean()]
        if self.count == 1:
            self.update(self.optimizers(), sum(losses))
        else:
            for optimizer, loss in zip(self.optimizers(), losses, strict=True):
                self.update(optimizer, loss)

    def update(self, optimizer, loss):
        optimizer.zero_grad()
        self.manual_backward(loss)
        optimizer.step()

    def configure_optimizers(self):
        if self.count == 1:
            return torch.optim.SGD(self.parameters(), lr=0.1)
        return [torch.optim.SGD(network.parameters(), lr=0.1) for network in self.networks]


def train(strategy, optimizers):
    """Return the parameters that a strategy gives."""
    data = TensorDataset(
        torch.randn(32, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    )
    trainer = pl.Trainer(
        strategy=strategy,
        accelerator="cpu",
        devices=2,
        max_epochs=1,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        enable_checkpointing=False,
        use_distributed_sampler=False,
    )
    module = Module(optimizers)
    sampler = DistributedSampler(data, 2, int(os.environ["RANK"]), shuffle=False)
    trainer.fit(module, DataLoader(data, 4, sampler=sampler))
    return torch.cat([p.detach().flatten() for p in module.parameters()]).tolist()


def through_fleet(optimizers, **switches):
    strategy = fleet.DistributedStrategy()
    strategy.find_unused_parameters = optimizers == 2
    for name, value in switches.items():
        setattr(strategy, name, value)
    return train(FleetStrategy(strategy), optimizers)


def main():
    warnings.filterwarnings("ignore")
    told = {
        "theirs 1": train("ddp", 1),
        "ours 1": through_fleet(1),
        "theirs 2": train("ddp_find_unused_parameters_true", 2),
        "ours 2": through_fleet(2),
        "averaged 1": through_fleet(1, localsgd=True, localsgd_configs={"k_steps": 1}),
    }
    path = Path(sys.argv[1]) / f"{os.environ['RANK']}.json"
    path.write_text(json.dumps(told))


if __name__ == "__main__":
    main()
