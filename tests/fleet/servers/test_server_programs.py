"""Programs that train with servers: the same numbers as one process with all batches."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from jobs import role, run_cases
from programs import IDS, STEPS, batch, fresh, network, optimizer, strategy

from fleetx import fleet, static
from fleetx.ps.modes.server_mode import ServerMode

pytestmark = [
    pytest.mark.slow,  # starts jobs or servers
    pytest.mark.usefixtures("fresh_fleet", "fresh_graph"),
]

NAMES = ("w0", "w1", "fc_0.b_0", "fc_1.b_0", "table")


@dataclass
class Case:
    """One training run."""

    servers: int = 2
    workers: int = 1
    optimizer: str = "sgd"
    mode: Any = "sync"
    sparse: str = "is_sparse"
    more: dict[str, Any] = field(default_factory=dict)
    rate: str = "number"
    padding: int | None = None
    empty: bool = False
    """Whether the last worker's second batch has no rows; for SGD."""
    endpoints: tuple[str, ...] = ()

    def make_optimizer(self) -> Any:
        more = dict(self.more)
        if "clip" in more:
            kind, limit = more.pop("clip")
            more["grad_clip"] = getattr(static.clip, f"GradientClipBy{kind}")(limit)
        if "l2" in more:
            more["regularization"] = static.regularizer.L2Decay(more.pop("l2"))
        made = optimizer(self.optimizer, **more)
        if self.rate == "decay":
            made = static.optimizer.SGD(static.layers.exponential_decay(0.1, 2, 0.5), **more)
        elif self.rate == "scheduler":
            made = static.optimizer.SGD(static.lr.ExponentialDecay(0.1, 0.5), **more)
        return made


def feed_of(case: Case, step: int, worker: int) -> dict[str, np.ndarray]:
    feed = batch(step, worker)
    if case.empty and step == 1 and worker == case.workers - 1:
        return {name: value[:0] for name, value in feed.items()}
    return feed


def train_case(case: Case, worker: int) -> dict[str, np.ndarray]:
    fresh()
    with static.scope_guard(static.Scope()):
        fleet.init(role(fleet.Role.WORKER, worker, case))
        loss, _ = network(case.sparse, case.padding)
        chosen = case.mode if isinstance(case.mode, ServerMode) else strategy(case.mode)
        fleet.distributed_optimizer(case.make_optimizer(), chosen).minimize(loss)
        fleet.init_worker()
        exe = static.Executor()
        exe.run(fleet.startup_program)
        assert not [op for op in fleet.main_program.global_block().ops if op.type == "adam"]
        for step in range(STEPS):
            exe.run(fleet.main_program, feed=feed_of(case, step, worker), fetch_list=[loss])
            if case.rate == "scheduler":
                fleet.fleet._user_optimizer._learning_rate.step()
        found = {n: _value(n) for n in NAMES}
        link = fleet.main_program.binding.servers
        if "table" in link.tables.sparse:
            if link.tables.sparse["table"].given:
                check_refused_id(exe, loss)
            found["table"] = link.whole_table("table").numpy().copy()
        fleet.stop_worker()
    return found


def check_refused_id(exe: Any, loss: Any) -> None:
    feed = batch(0, 0)
    for outside in (IDS, -1):
        feed["ids"][3, 1] = outside
        with pytest.raises(static.ExecutionError) as refused:
            exe.run(fleet.main_program, feed=feed, fetch_list=[loss])
        assert (
            f"id {outside} is outside the table 'table', which has {IDS} rows: ids go from 0 to "
            f"{IDS - 1}."
        ) in str(refused.value)


def _value(name: str) -> Any:
    found = static.global_scope().find_var(name)
    return None if found is None or found.value is None else found.value.numpy().copy()


def alone(case: Case) -> dict[str, np.ndarray]:
    """Train in one process with the batches of all workers."""
    fresh()
    with static.scope_guard(static.Scope()):
        loss, _ = network("is_sparse" if case.sparse == "growing" else case.sparse, case.padding)
        made = case.make_optimizer()
        made.minimize(loss)
        exe = static.Executor()
        exe.run(static.default_startup_program())
        rate = static.global_scope().find_var("learning_rate_0")
        for step in range(STEPS):
            parts = [feed_of(case, step, worker) for worker in range(case.workers)]
            feed = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
            # Every worker counts the same, and an empty batch has a gradient of zero.
            share = sum(len(part["x"]) > 0 for part in parts) / case.workers
            if 0 < share < 1:
                rate.value.mul_(share)
            exe.run(feed=feed, fetch_list=[loss])
            if 0 < share < 1:
                rate.value.div_(share)
            if case.rate == "scheduler":
                made._learning_rate.step()
        return {name: _value(name) for name in NAMES}


def check(cases: list[Case]) -> None:
    results = run_cases(train_case, cases)
    for number, case in enumerate(cases):
        expected = alone(case)
        for worker in range(case.workers):
            for name, value in expected.items():
                found = results[worker][number][name]
                np.testing.assert_allclose(
                    found, value, rtol=0, atol=1e-10, err_msg=f"{case} {name}"
                )


SLICED = ServerMode(kind="sync", min_block_size=4)
WHOLE = ServerMode(kind="sync", slice_var_up=False)
HASHED = ServerMode(kind="sync", min_block_size=2, split_method="HashName")


@pytest.mark.filterwarnings("ignore:The batch of this training step is empty")
def test_programs_train_as_in_one_process():
    cases = [
        Case(1, 1, "sgd"),
        Case(2, 2, "sgd", SLICED),
        Case(3, 3, "adagrad", SLICED),
        Case(2, 3, "adam", WHOLE, sparse="dense"),
        Case(3, 2, "momentum", HASHED),
        Case(2, 2, "adamw", SLICED, sparse="dense"),
        Case(3, 1, "rmsprop", SLICED, sparse="dense"),
        Case(2, 2, "adamax", SLICED, sparse="dense"),
        Case(2, 2, "adadelta", SLICED, sparse="dense"),
        Case(2, 2, "decayed_adagrad", SLICED, sparse="dense"),
        Case(2, 2, "ftrl", SLICED, sparse="dense"),
        Case(2, 2, "sgd", SLICED, sparse="later"),
        Case(2, 2, "adagrad", SLICED, sparse="later", padding=3),
        Case(2, 2, "sgd", SLICED, sparse="chained"),
        Case(2, 1, "sgd", "geo", sparse="later"),
        Case(2, 2, "lars", SLICED, sparse="dense"),
        Case(2, 2, "lamb", SLICED, sparse="dense"),
        Case(2, 2, "sgd", SLICED, sparse="growing", padding=3),
        Case(2, 2, "sgd", SLICED, padding=3),
        Case(2, 2, "sgd", SLICED, more={"clip": ("GlobalNorm", 0.3)}),
        Case(2, 2, "adam", SLICED, sparse="dense", more={"clip": ("Norm", 0.2), "l2": 0.1}),
        Case(2, 2, "adagrad", SLICED, more={"clip": ("Value", 0.05)}),
        Case(2, 2, "sgd", SLICED, rate="decay"),
        Case(2, 2, "sgd", SLICED, rate="scheduler"),
        Case(2, 1, "adagrad", "async"),
        Case(2, 1, "sgd", "geo"),
        Case(2, 1, "sgd", ServerMode(kind="half_async")),
        Case(2, 2, "sgd", SLICED, empty=True, padding=3),
        Case(2, 2, "sgd", SLICED, sparse="dense", empty=True),
        Case(2, 1, "sgd", "async", empty=True),
        Case(2, 1, "sgd", "geo", sparse="growing", empty=True),
        Case(2, 1, "sgd", ServerMode(kind="half_async"), empty=True),
    ]
    check(cases)
