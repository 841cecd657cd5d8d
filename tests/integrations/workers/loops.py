"""Train a small network with the loop of a library, plain and through Fleet; write the results.

    loops.py FOLDER LIBRARY,LIBRARY,... CASE...

Data, network and order of batches are the same in every case. Per case: losses, the checksum of the
parameters, bytes per step said by `explain()` and received over TCP, and what a resumed run gives.
"""

import json
import sys
import warnings
from pathlib import Path

import torch
from library_loops import LOOPS, SAMPLES, STEPS, Task
from sharding import received
from torch import nn
from torch.utils.data import Dataset

from fleetx import fleet

WIDTH = 160


class Numbers(Dataset):
    """Random rows, and the sum of each."""

    def __init__(self):
        self.x = torch.randn(SAMPLES, WIDTH, generator=torch.Generator().manual_seed(1))

    def __len__(self):
        return SAMPLES

    def __getitem__(self, index):
        return {"x": self.x[index], "y": self.x[index].sum()}


class Network(nn.Module):
    """A regression."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(2)
        self.body = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 1))

    def forward(self, x, y):
        return {"loss": nn.functional.mse_loss(self.body(x).squeeze(-1), y)}


def make_strategy(case):
    """Return the strategy of a case; None for the library's own DDP."""
    if case == "theirs":
        return None
    strategy = fleet.DistributedStrategy()
    if "localsgd" in case:
        strategy.localsgd = True
        strategy.localsgd_configs = {"k_steps": 4, "begin_step": 1}
    if "gradient_merge" in case:
        strategy.gradient_merge = True
        strategy.gradient_merge_configs = {"k_steps": 2}
    if "dgc" in case:
        strategy.dgc = True
        strategy.dgc_configs = {"rampup_begin_step": 1, "sparsity": [0.99]}
    if "sharding" in case:
        strategy.sharding = True
        strategy.sharding_configs = {"stage": 2}
    return strategy


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.001, momentum=0.9)


def checksum(model):
    return sum(float(p.detach().double().abs().sum()) for p in model.parameters())


def train(library, case, folder, resume=False):
    """Return what a run gave."""
    strategy, marks = make_strategy(case), []  # the bytes received until the end of each step
    task = Task(Network, Numbers(), sgd, strategy, after_step=lambda: marks.append(received()))
    task.accumulate = 2 if "accumulated" in case else 1
    trained = LOOPS[library](task, folder, resume)
    told = {"losses": trained.losses, "sum": checksum(trained.network), "logged": trained.logged}
    if trained.progress is not None:
        told["progress"] = trained.progress
    if len(marks) >= STEPS:
        told["received"] = (marks[STEPS - 1] - marks[STEPS - 5]) / 4
    if strategy is not None:
        told["said"] = fleet.explain().bytes_sent
        told["techniques"] = fleet.fleet._get_applied_meta_list()
    return told


def main():
    warnings.filterwarnings("ignore")
    folder, libraries, *cases = sys.argv[1:]
    for library in libraries.split(","):
        told = {}
        for case in cases:
            place = str(Path(folder) / library / case)
            told[case] = train(library, case, place)
            if case not in ("theirs", "plain", "accumulated"):
                told[case]["resumed"] = train(library, case, place, resume=True)
        rank = torch.distributed.get_rank()
        (Path(folder) / f"{library}.{rank}.json").write_text(json.dumps(told))


if __name__ == "__main__":
    main()
