"""Train a model with rows on parameter servers by the loop of a library; write the results.

    served_loops.py FOLDER LIBRARY [resume]

Per worker: the losses, and the model's answers at the end, whose rows come from the servers. With
`resume`, the second epoch alone, from the checkpoint of an earlier job; libraries other than
Lightning, which makes a new optimizer for that, also go back to the checkpoint in the same job.
"""

import json
import sys
import warnings
from pathlib import Path

import torch
from library_loops import LOOPS, SAMPLES, Task
from torch import nn
from torch.utils.data import Dataset

import fleetx
from fleetx import fleet


class Clicks(Dataset):
    """Ids and a number for each."""

    def __len__(self):
        return SAMPLES

    def __getitem__(self, index):
        return {"user": torch.tensor(index % 24 * 10**9), "y": torch.tensor(float(index % 5))}


class Network(nn.Module):
    """Rows and a head."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(2)
        self.rows = fleetx.SparseEmbedding("user", 8)
        self.head = nn.Linear(8, 1)

    def score(self, user):
        return self.head(self.rows(user)).squeeze(-1)

    def forward(self, user, y):
        return {"loss": nn.functional.mse_loss(self.score(user), y)}


def adam(parameters):
    return torch.optim.Adam(parameters, lr=0.05)


def main():
    warnings.filterwarnings("ignore")
    folder, library, *rest = sys.argv[1:]
    strategy = fleet.DistributedStrategy()
    strategy.a_sync = False
    task = Task(Network, Clicks(), adam, strategy, repeats=library != "lightning")
    trained = LOOPS[library](task, f"{folder}/{library}", bool(rest))
    with torch.no_grad():
        scores = trained.network.score(torch.arange(30) * 10**9).tolist()
    told = {"losses": trained.losses, "scores": scores, "servers": fleet.server_num()}
    rank = fleet.worker_index()
    (Path(folder) / f"{library}.{rank}{''.join(rest)}.json").write_text(json.dumps(told))


if __name__ == "__main__":
    main()
