"""Programs that train with servers: the same numbers as one process with all batches."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jobs import role, run_cases
from programs import STEPS, batch, fresh, joined, network, optimizer, strategy

from fleetx import fleet, static
from fleetx.fleet.server_mode import ServerMode

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
            exe.run(fleet.main_program, feed=batch(step, worker), fetch_list=[loss])
            if case.rate == "scheduler":
                fleet.fleet._user_optimizer._learning_rate.step()
        found = {n: _value(n) for n in NAMES}
        link = fleet.main_program._servers
        if "table" in link.tables.sparse:
            found["table"] = link.whole_table("table").numpy().copy()
        fleet.stop_worker()
    return found


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
        for step in range(STEPS):
            exe.run(feed=joined(step, case.workers), fetch_list=[loss])
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


def test_programs_train_as_in_one_process():
    cases = [
        Case(1, 1, "sgd"),
        Case(2, 2, "sgd", SLICED),
        Case(3, 3, "adagrad", SLICED),
        Case(2, 3, "adam", WHOLE, sparse="dense"),
        Case(3, 2, "momentum", HASHED),
        Case(2, 2, "adamw", SLICED, sparse="dense"),
        Case(3, 1, "rmsprop", SLICED, sparse="dense"),
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
    ]
    check(cases)
