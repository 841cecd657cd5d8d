"""Modules of PyTorch that train with servers: the same numbers as one process with all batches."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch
from jobs import role, run_cases
from torch import nn

import fleetx
from fleetx import fleet
from fleetx.fleet.session import Fleet
from fleetx.ps.modes.async_mode import AsyncSettings
from fleetx.ps.modes.server_mode import ServerMode
from fleetx.ps.tables.table_spec import InitializerSpec

pytestmark = [
    pytest.mark.slow,  # starts jobs or servers
    pytest.mark.usefixtures("fresh_fleet", "fresh_graph"),
]

ROWS, IDS, STEPS = 6, 24, 4
UNIFORM = InitializerSpec(kind="uniform", settings={"low": -0.5, "high": 0.5})


@dataclass
class Case:
    """One training run."""

    servers: int = 2
    workers: int = 1
    optimizer: str = "SGD"
    mode: Any = field(default_factory=lambda: ServerMode(kind="sync", min_block_size=4))
    settings: dict[str, Any] = field(default_factory=dict)
    technique: str = ""
    groups: bool = False
    schedule: bool = False
    embeddings: str = "both"
    rows: str | None = None
    ahead: bool = False
    empty: bool = False
    """Whether the last worker's second batch has no rows."""
    endpoints: tuple[str, ...] = ()


class Net(nn.Module):
    """Dense layers on two embeddings."""

    def __init__(self, case: Case) -> None:
        super().__init__()
        torch.manual_seed(3)
        both = case.embeddings == "both"
        if both:
            self.words = fleetx.SparseEmbedding(
                "words", 3, initializer=UNIFORM, dtype=torch.float64, optimizer=case.rows
            )
        self.ids = nn.Embedding(IDS, 3, sparse=both, padding_idx=2).double()
        self.hidden = nn.Linear(4 + 3 + 3 * both, 5).double()
        self.out = nn.Linear(5, 1).double()
        self.register_buffer("scale", torch.full((1,), 0.5, dtype=torch.float64))

    def forward(self, x: Any, ids: Any) -> Any:
        parts = [x, self.ids(ids[:, 0])]
        if hasattr(self, "words"):
            parts.append(self.words(ids[:, 1] * 10**12))
        return self.out(torch.tanh(self.hidden(torch.cat(parts, 1)))) * self.scale


def batch(step: int, worker: int) -> tuple[torch.Tensor, ...]:
    made = torch.Generator().manual_seed(100 * step + worker)
    x, y = (torch.randn(ROWS, n, generator=made, dtype=torch.float64) for n in (4, 1))
    return x, torch.randint(0, IDS, (ROWS, 2), generator=made), y


def batches_of(case: Case, worker: int) -> list[tuple[torch.Tensor, ...]]:
    found = [batch(step, worker) for step in range(STEPS)]
    if case.empty and worker == case.workers - 1:
        found[1] = tuple(each[:0] for each in found[1])
    return found


def train(session: Any, case: Case, batches: Any, shares: Any = None) -> dict[str, torch.Tensor]:
    model = Net(case)
    groups: Any = model.parameters()
    if case.groups:
        groups = [{"params": [*model.hidden.parameters(), *model.ids.parameters()]}]
        groups.append({"params": model.out.parameters(), "lr": 0.03})
    made = getattr(torch.optim, case.optimizer)(groups, **{"lr": 0.1, **case.settings})
    optimizer = session.distributed_optimizer(made)
    wrapped = session.distributed_model(model)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5) if case.schedule else None
    for number, (x, ids, y) in enumerate(batches):
        optimizer.zero_grad()
        loss = ((wrapped(x, ids) - y) ** 2).mean()
        (loss if shares is None else loss * shares[number]).backward()
        if case.ahead and number + 1 < len(batches):
            following = batches[number + 1][1]
            model.words.prefetch(following[:, 1] * 10**12)
            if hasattr(model.ids, "prefetch"):  # rows on servers
                model.ids.prefetch(following[:, 0])
        optimizer.step()
        if scheduler is not None:
            scheduler.step()
    found = {n: p.detach().clone() for n, p in model.named_parameters()}
    with torch.no_grad():
        found["ids.weight"] = model.ids(torch.arange(IDS)).clone()
        if hasattr(model, "words"):
            found["words"] = model.words(torch.arange(IDS) * 10**12)
    return found


def strategy(case: Case) -> Any:
    made = fleet.DistributedStrategy()
    if case.technique:
        setattr(made, case.technique, True)
        if case.technique == "lars":
            made.lars_configs = {"exclude_from_weight_decay": ["bias"]}
    return made


def served(case: Case, worker: int) -> dict[str, np.ndarray]:
    session = Fleet()
    made: Any = case.mode
    if case.technique:
        made = strategy(case)
        made.a_sync = False
    session.init(role(fleet.Role.WORKER, worker, case), strategy=made)
    session.init_worker()
    found = train(session, case, batches_of(case, worker))
    session.stop_worker()
    return {name: value.numpy() for name, value in found.items()}


def alone(case: Case) -> dict[str, torch.Tensor]:
    session = Fleet()
    session.init(strategy=strategy(case))
    batches, shares = [], []
    for parts in zip(*(batches_of(case, worker) for worker in range(case.workers)), strict=True):
        batches.append(tuple(torch.cat(each) for each in zip(*parts, strict=True)))
        # Every worker counts the same, and an empty batch has a gradient of zero.
        full = [each for each in parts if len(each[0])]
        shares.append(len(full) / case.workers if full else 1.0)
    return train(session, case, batches, shares)


def check(cases: list[Case]) -> None:
    results = run_cases(served, cases)
    for number, case in enumerate(cases):
        expected = alone(case)
        for worker in range(case.workers):
            for name, value in expected.items():
                found = results[worker][number][name]
                np.testing.assert_allclose(
                    found, value.numpy(), rtol=0, atol=1e-10, err_msg=f"{case} {name}"
                )


# The op of LAMB has betas in single precision, as in Paddle: these are the same in both.
EXACT = {"betas": (0.875, 0.9921875)}
OTHERS = {"embeddings": "dense"}
WHOLE = ServerMode(kind="sync", slice_var_up=False)
ASYNC = ServerMode(kind="async", settings=AsyncSettings(max_staleness=0))


@pytest.mark.filterwarnings("ignore:The batch of this training step is empty")
def test_modules_train_as_in_one_process():
    check(
        [
            Case(1, 1),
            Case(2, 2),
            Case(3, 3, "Adagrad", settings={"initial_accumulator_value": 0.1}),
            Case(2, 2, settings={"momentum": 0.9, "weight_decay": 0.01}, rows="sgd", **OTHERS),
            Case(2, 3, "Adam", WHOLE, **OTHERS),
            Case(3, 2, "AdamW", settings={"betas": (0.8, 0.9)}, groups=True, **OTHERS),
            Case(2, 2, "RMSprop", **OTHERS),
            Case(2, 2, settings={"momentum": 0.9}, technique="lars", **OTHERS),
            Case(2, 2, "Adam", settings=EXACT, technique="lamb", **OTHERS),
            Case(2, 2, schedule=True),
            Case(2, 1, "Adagrad", ASYNC),
            Case(2, 1, mode=ServerMode(kind="geo", k_steps=1)),
            Case(2, 2, ahead=True),
            Case(2, 1, mode=ServerMode(kind="geo", k_steps=1), ahead=True),
            Case(1, 1, mode=ServerMode(kind="half_async")),
            Case(2, 2, empty=True),
            Case(2, 1, "Adagrad", empty=True, mode=ASYNC),
            Case(2, 1, mode=ServerMode(kind="geo", k_steps=1), ahead=True, empty=True),
            Case(1, 1, mode=ServerMode(kind="half_async"), empty=True),
        ]
    )
