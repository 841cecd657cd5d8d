"""A factorisation of MovieLens 100k with rows on servers is as good as in one process."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from jobs import role, run_cases
from torch import nn

import fleetx
from fleetx import fleet
from fleetx.fleet.session import Fleet
from fleetx.ps.modes.server_mode import ServerMode
from fleetx.ps.tables.table_spec import InitializerSpec

pytestmark = pytest.mark.slow  # starts jobs or servers

DATA = Path(__file__).parents[4] / "shared" / "data" / "ml-100k" / "ml-100k.inter"
DIM, BATCH, EPOCHS = 8, 2000, 2


@dataclass
class Case:
    """One training run."""

    mode: Any
    servers: int = 2
    workers: int = 2
    endpoints: tuple[str, ...] = ()


class Factors(nn.Module):
    """The probability that a user gives an item 4 or 5 stars."""

    def __init__(self) -> None:
        super().__init__()
        begin = InitializerSpec(kind="normal", settings={"std": 0.1})
        self.users = fleetx.SparseEmbedding("users", DIM + 1, initializer=begin)
        self.items = fleetx.SparseEmbedding("items", DIM + 1, initializer=begin)
        self.bias = nn.Parameter(torch.zeros(1))

    def forward(self, pairs: torch.Tensor) -> torch.Tensor:
        users, items = self.users(pairs[:, 0]), self.items(pairs[:, 1])
        match = (users[:, :DIM] * items[:, :DIM]).sum(1)
        return match + users[:, DIM] + items[:, DIM] + self.bias


@cache
def ratings() -> tuple[torch.Tensor, torch.Tensor]:
    table = np.loadtxt(DATA, skiprows=1, usecols=(0, 1, 2), dtype=np.int64)
    order = np.random.RandomState(0).permutation(len(table))
    table = torch.from_numpy(table[order])
    return table[:, :2], (table[:, 2] >= 4).float()


def auc(scores: torch.Tensor, labels: torch.Tensor) -> float:
    ranks = torch.empty(len(scores))
    ranks[scores.argsort()] = torch.arange(1, len(scores) + 1, dtype=torch.float32)
    positive = labels.sum().item()
    above = ranks[labels > 0].double().sum().item() - positive * (positive + 1) / 2
    return above / (positive * (len(labels) - positive))


def train(session: Any, geo: bool, worker: int, workers: int) -> float:
    torch.manual_seed(0)
    pairs, labels = ratings()
    count = len(pairs) * 9 // 10
    model = Factors()
    # Geo training has plain SGD for rows; the sum over a batch takes the place of per-row rates.
    made = torch.optim.SGD if geo else torch.optim.Adagrad
    optimizer = session.distributed_optimizer(made(model.parameters(), lr=60.0 if geo else 0.1))
    wrapped = session.distributed_model(model)
    for _ in range(EPOCHS):
        for start in range(0, count, BATCH):
            own = slice(start + worker * BATCH // workers, start + (worker + 1) * BATCH // workers)
            optimizer.zero_grad()
            scores = wrapped(pairs[own])
            loss = nn.functional.binary_cross_entropy_with_logits(scores, labels[own])
            loss.backward()
            optimizer.step()
    if workers > 1:
        session.barrier_worker()
    with torch.no_grad():
        return auc(wrapped(pairs[count:]), labels[count:])


def served(case: Case, worker: int) -> float:
    session = Fleet()
    session.init(role(fleet.Role.WORKER, worker, case), strategy=case.mode)
    session.init_worker()
    found = train(session, case.mode.kind == "geo", worker, case.workers)
    session.barrier_worker()
    session.stop_worker()
    return found


def alone(geo: bool) -> float:
    session = Fleet()
    session.init()
    return train(session, geo, 0, 1)


@pytest.mark.skipif(
    not DATA.is_file(),
    reason="not beside the project: documents, data",
)
def test_every_mode_reaches_the_quality_of_one_process():
    kinds = ("sync", "async", "half_async", "geo")
    results = run_cases(served, [Case(ServerMode(kind=kind, k_steps=4)) for kind in kinds])
    expected = {geo: alone(geo) for geo in (False, True)}
    print(expected, results)
    assert min(expected.values()) > 0.72
    for number, kind in enumerate(kinds):
        assert results[0][number] > expected[kind == "geo"] - 0.02, kind
