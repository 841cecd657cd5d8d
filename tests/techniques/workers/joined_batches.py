"""Trains divided models whose workers bring different samples, case by case.

Each worker writes its parameters at the end of each case, as lists of numbers."""

import sys
from pathlib import Path

import divided_stages
import hybrid
import pipeline
import torch
from divided_pairs import begin, refusal, write
from torch import nn

from fleetx import fleet


def joined(settings):
    """Return settings by which the workers of a copy bring different samples."""
    degrees = {**settings.get("hybrid_configs", {}), "joined_batches": True}
    return {**settings, "hybrid_configs": degrees}


LAYERS = {
    "tp2": (hybrid.TP2, "adamw"),
    "tp4": (hybrid.TP4, "momentum"),
    "tp2 x shards 3": (hybrid.BOTH, "adamw"),
    "shards 2": (hybrid.shards(2), "adamw"),
}
STAGES = {
    "2 x 2": (pipeline.pipeline(), "adamw"),
    "zero bubble": (pipeline.pipeline(schedule_mode="ZBVPP"), "momentum"),
    "4": (pipeline.pipeline(4), "adamw"),
    "2 x layers": (divided_stages.divided(mp=2), "adamw"),
    "2 x shards 3": (divided_stages.divided(sharding=2, stage=3), "adamw"),
}


class TwoOutputs(nn.Module):
    """A model whose outputs workers use in different ways, with a loss of its own."""

    tensor_parallel_plan = {"up": "colwise", "down": "rowwise"}

    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(3, 4), nn.Linear(4, 2)

    def forward(self, x, *, scale):
        hidden = self.down(torch.tanh(self.up(x) * scale))
        return {"loss": hidden.square().mean(), "scores": hidden, "others": hidden * 2, "n": len(x)}


def outputs(settings):
    """Return gradients of a loss that takes other outputs on each worker, and what they are."""
    begin(settings)
    torch.manual_seed(5)
    model = fleet.distributed_model(TwoOutputs().double())
    optimizer = fleet.distributed_optimizer(torch.optim.SGD(model.parameters(), lr=0.1))
    x = torch.randn(4, 2, 3, dtype=torch.float64)[fleet.worker_index()]
    found = model(x, scale=torch.tensor(0.5, dtype=torch.float64))
    own = found["scores" if fleet.worker_index() % 2 else "others"]
    (own.mean() + own.square().sum()).backward()
    optimizer.step()
    return {
        "loss": found["loss"].item(),
        "shape": list(found["scores"].shape),
        "values": {name: value.tolist() for name, value in model.state_dict().items()},
    }


class Dropped(nn.Module):
    """A model with dropout before a layer that every worker has as a whole."""

    tensor_parallel_plan = {"up": "colwise", "down": "rowwise"}

    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(3, 4), nn.Linear(4, 6)
        self.drop, self.last = nn.Dropout(0.5), nn.Linear(6, 2)

    def forward(self, x):
        return self.last(self.drop(self.down(self.up(x))))


def dropout():
    """Return what a whole layer becomes after dropout, and a number that the script draws then."""
    begin(joined(hybrid.TP2))
    torch.manual_seed(5)
    model = fleet.distributed_model(Dropped().double())
    optimizer = fleet.distributed_optimizer(torch.optim.SGD(model.parameters(), lr=0.1))
    torch.manual_seed(fleet.worker_index())
    x = torch.ones(2, 3, dtype=torch.float64)
    for _ in range(2):
        optimizer.zero_grad()
        model(x).square().sum().backward()
        optimizer.step()
    return {"last": model.last.weight.tolist(), "drawn": torch.rand(()).item()}


def refusals():
    """Return the errors for batches of different shapes, and for outputs that are no samples."""
    model, _ = hybrid.make(joined(hybrid.TP2), "sgd")
    different = refusal(model, hybrid.batch(0)[: 1 + fleet.worker_index()])
    whole = TwoOutputs()
    whole.forward = lambda x: whole.down(whole.up(x)).sum(0)
    model = fleet.distributed_model(whole)
    return {"shapes": different, "outputs": refusal(model, torch.randn(2, 3))}


def main():
    folder = Path(sys.argv[1])
    fleet.init(is_collective=True)
    layers = {name: (joined(given), kind) for name, (given, kind) in LAYERS.items()}
    stages = {name: (joined(given), kind) for name, (given, kind) in STAGES.items()}
    result = {
        "layers": {name: hybrid.case(*given) for name, given in layers.items()},
        "stages": {name: pipeline.case(*given) for name, given in stages.items()},
        "parts": [fleet.data_index(), fleet.data_num()],
        "outputs": outputs(joined(hybrid.TP2)),
        "outputs of copies": outputs({}),
        "dropout": dropout(),
        "refused": refusals(),
    }
    write(folder, result)


if __name__ == "__main__":
    main()
