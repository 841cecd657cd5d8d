"""Training with techniques in a job with servers, and the same in one process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch
from jobs import role
from programs import batch as program_batch
from programs import fresh, network, optimizer
from programs import joined as joined_batches
from torch import nn

from fleetx import fleet, static
from fleetx.fleet.collective.distributed_optimizer import DistributedOptimizer
from fleetx.fleet.session import Fleet

ROWS, IDS, STEPS = 4, 12, 4
CLIP = {"norm": 0.05}  # smaller than every gradient of these tests


class Net(nn.Module):
    """Dense layers on an embedding that becomes rows on servers."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.ids = nn.Embedding(IDS, 3, sparse=True).double()
        self.hidden = nn.Sequential(nn.Linear(7, 5), nn.Tanh()).double()
        self.out = nn.Linear(5, 1).double()

    def forward(self, x: Any, ids: Any) -> Any:
        return self.out(self.hidden(torch.cat([x, self.ids(ids)], 1)))


def batch(step: int, worker: int) -> tuple[torch.Tensor, ...]:
    made = torch.Generator().manual_seed(100 * step + worker)
    x, y = (torch.randn(ROWS, n, generator=made, dtype=torch.float64) for n in (4, 1))
    return x, torch.randint(0, IDS, (ROWS,), generator=made), y


def values(model: Net) -> dict[str, np.ndarray]:
    found = {n: p.detach().numpy().copy() for n, p in model.named_parameters() if "ids" not in n}
    with torch.no_grad():
        found["rows"] = model.ids(torch.arange(IDS)).numpy().copy()
    return found


@dataclass
class Case:
    """One training run of a job."""

    train: Callable[[Case, Any, int], Any]
    settings: dict[str, Any] = field(default_factory=dict)
    servers: int = 2
    workers: int = 2
    endpoints: tuple[str, ...] = ()
    optimizer: str = "adagrad"
    overflow: tuple[int, int] | None = None
    """Step and worker."""
    folder: str = ""

    def strategy(self) -> Any:
        made = fleet.DistributedStrategy()
        made.a_sync = False
        for name, value in self.settings.items():
            setattr(made, name, value)
        return made


def served(case: Case, worker: int) -> Any:
    session = Fleet()
    session.init(role(fleet.Role.WORKER, worker, case), strategy=case.strategy())
    session.init_worker()
    found = case.train(case, session, worker)
    session.stop_worker()
    return found


def joined(session: Any, model: Net) -> tuple[Any, Any]:
    made = session.distributed_optimizer(torch.optim.SGD(model.parameters(), lr=0.1))
    return session.distributed_model(model), made


def loss_of(model: Any, step: int, worker: int) -> torch.Tensor:
    x, ids, y = batch(step, worker)
    return ((model(x, ids) - y) ** 2).mean()


# -- cases: each is run by every worker -----------------------------------------------------------
def train(case: Case, session: Any, worker: int) -> Any:
    model = Net()
    wrapped, made = joined(session, model)
    updates = []
    for step in range(STEPS):
        updates.append(made.is_update_step)
        made.zero_grad()
        loss = loss_of(wrapped, step, worker)
        loss.backward()
        made.step(loss=loss)
    text = str(session._explanation())
    return values(model), updates, text, type(made) is DistributedOptimizer


def train_by_every_call(case: Case, session: Any, worker: int) -> Any:
    """Train by each of the ways in which a script may call the optimizer."""
    model = Net()
    wrapped, made = joined(session, model)
    loss = loss_of(wrapped, 0, worker)
    loss.backward()
    made.minimize(loss)  # a second backward pass would raise
    made.minimize(loss_of(wrapped, 1, worker))

    def closure() -> Any:
        made.zero_grad()
        loss = loss_of(wrapped, 2, worker)
        loss.backward()
        return loss

    assert made.step(closure) is not None
    made.zero_grad()
    loss_of(wrapped, 3, worker).backward()
    session.step()
    return values(model)


def train_and_flush(case: Case, session: Any, worker: int) -> Any:
    """Merge two batches of worker 0 and one of worker 1, which are fewer than k_steps."""
    model = Net()
    wrapped, made = joined(session, model)
    for step in range(2 - worker):
        made.zero_grad()
        loss_of(wrapped, step, worker).backward()
        made.step()
    state = made.state_dict()["fleet"]["grad_sync"]["count"]
    made.flush()
    made.flush()  # nothing is left
    return values(model), state


def train_in_half(case: Case, session: Any, worker: int) -> Any:
    """Overflow on worker 1 in the first step, then train."""
    model = Net().float()
    wrapped, made = joined(session, model)
    first = values(model)
    losses = []
    for step in range(STEPS + 1):
        x, ids, y = batch(0, worker)
        out = wrapped(x.float(), ids)
        loss = ((out - y.float()) ** 2).mean()
        made.minimize(loss * torch.inf if step == 0 and worker == 1 else loss)
        if step == 0:
            skipped = values(model)
        losses.append(float(loss.detach()))
    return first, skipped, losses, values(model), made.state_dict()["fleet"]["precision"]


def save_merged(case: Case, session: Any, worker: int) -> Any:
    """Save what a worker has merged, merge more, and load."""
    model = Net()
    wrapped, made = joined(session, model)

    def step(number: int) -> dict[str, np.ndarray]:
        made.zero_grad()
        loss_of(wrapped, number, worker).backward()
        made.step()
        return merged()

    def merged() -> dict[str, np.ndarray]:
        state = made.state_dict()["fleet"]["grad_sync"]
        (rows,) = state["inner"]["rows"]
        found = {**state["merged"], **rows}
        return {name: value.numpy().copy() for name, value in found.items()}

    first = step(0)
    session.save_checkpoint(case.folder, optimizer=made)
    session.barrier_worker()  # worker 0 has renamed the folder
    second = step(1)
    session.load_checkpoint(case.folder, optimizer=made)
    return first, second, merged()


def find_a_nan(case: Case, session: Any, worker: int) -> Any:
    """Have a gradient that is not a number on worker 1 alone."""
    model = Net()
    wrapped, made = joined(session, model)
    loss = loss_of(wrapped, 0, worker)
    if worker == 0:
        return None
    (loss * torch.nan).backward()
    with pytest.raises(static.errors.NotFiniteError, match="of 'out.bias' .* on worker 1"):
        made.step()
    return True


def train_a_program(case: Case, session: Any, worker: int) -> Any:
    """Train a program whose checkpoints are the outputs of its hidden layer."""
    fresh()
    loss, _ = network("is_sparse")
    ops = loss.block.program.global_block().ops
    tops = [op.output("Out")[0] for op in ops if op.type == "tanh"]
    wanted = case.strategy()
    wanted.recompute_configs = {"checkpoints": tops}
    session.distributed_optimizer(optimizer(case.optimizer), wanted).minimize(loss)
    exe = static.Executor()
    with static.scope_guard(static.Scope()):
        exe.run(session.startup_program)
        for step in range(STEPS):
            feed = program_batch(step, worker)
            if (step, worker) == case.overflow:
                feed["x"] = feed["x"] * np.inf
            exe.run(session.main_program, feed=feed, fetch_list=[loss])
        link = session._servers._link
        found = program_values(link.whole_table("table") if link.tables.sparse else None)
        if case.overflow:
            found["scale"] = static.global_scope().find_var("loss_scaling_0").value.numpy().copy()
    types = [op.type for block in session.main_program.blocks for op in block.ops]
    return found, types, [row.technique for row in session._explanation().rows]


def program_values(rows: Any = None) -> dict[str, np.ndarray]:
    """Return the parameters in the scope; `rows` are those of a table on servers."""
    scope = static.global_scope()
    names = ("w0", "w1") if rows is not None else ("w0", "w1", "table")
    found = {name: scope.find_var(name).value.numpy().copy() for name in names}
    return found if rows is None else {**found, "table": np.array(rows)}


def a_program_alone(
    kind: str = "adagrad",
    groups: tuple[tuple[int, ...], ...] = ((0,), (1,), (2,), (3,)),
    workers: int = 2,
    **more: Any,
) -> dict[str, np.ndarray]:
    """Train the same program in one process, each step with batches of all workers."""
    fresh()
    loss, _ = network("is_sparse")
    optimizer(kind, **more).minimize(loss)
    exe = static.Executor()
    with static.scope_guard(static.Scope()):
        exe.run(static.default_startup_program())
        for group in groups:
            parts = [joined_batches(step, workers) for step in group]
            feed = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
            exe.run(feed=feed, fetch_list=[loss])
        return program_values()


MERGED = {"gradient_merge": True, "gradient_merge_configs": {"k_steps": 2}}
CLIPPED = {"gradient_clip": True, "gradient_clip_configs": CLIP}
RECOMPUTED = {"recompute": True, "recompute_configs": {"checkpoints": ["hidden"]}}
# Every op of the network in single precision: only the scale of the loss is left of amp.
OPS = ["mul", "elementwise_add", "tanh", "mean", "lookup_table_v2", "concat", "reshape2"]
SCALED = {
    "amp": True,
    "amp_configs": {"dtype": "float16", "init_loss_scaling": 8.0, "custom_black_list": OPS},
}


def alone(groups: list[list[tuple[int, int]]], **settings: Any) -> dict[str, np.ndarray]:
    """Train in one process, a step for each group of batches (step, worker)."""
    session = Fleet()
    case = Case(train, settings)
    session.init(strategy=case.strategy())
    model = Net()
    wrapped, made = joined(session, model)
    for group in groups:
        x, ids, y = (torch.cat(parts) for parts in zip(*(batch(*b) for b in group), strict=True))
        made.zero_grad()
        ((wrapped(x, ids) - y) ** 2).mean().backward()
        made.step()
    return values(model)


EACH = [[(step, 0), (step, 1)] for step in range(STEPS)]
FRESH = {"max_staleness": 0}
OF_ONE = [[(0, 0), (1, 0)], [(2, 0), (3, 0)]]
PAIRS = [[*EACH[0], *EACH[1]], [*EACH[2], *EACH[3]]]


def same(found: Any, expected: Any, atol: float) -> None:
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=0, atol=atol, err_msg=name)
