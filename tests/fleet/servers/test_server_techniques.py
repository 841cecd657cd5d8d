"""Techniques in jobs with servers: the same numbers as one process with all batches, or refused."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from jobs import role, run_cases
from programs import batch as program_batch
from programs import fresh, network, optimizer
from programs import joined as joined_batches
from torch import nn

import warm_start
from fleetx import fleet, static
from fleetx.fleet.collective.distributed_optimizer import DistributedOptimizer
from fleetx.fleet.session import Fleet
from waiting import LIMIT

pytestmark = pytest.mark.usefixtures("fresh_fleet", "fresh_graph")

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
        state = made.state_dict()["fleet"]["grad_sync"]["merged"]
        return {name: value.numpy().copy() for name, value in state.items()}

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


@pytest.mark.slow  # starts servers
def test_techniques_in_a_job_with_servers(tmp_path):
    whole = {**MERGED, **CLIPPED, **RECOMPUTED}
    cases = [
        Case(train),
        Case(train, RECOMPUTED),
        Case(train, CLIPPED),
        Case(train, CLIPPED, servers=1),
        Case(train, MERGED),
        Case(train, whole),
        Case(train, {"gradient_clip": True, "gradient_clip_configs": {"value": 0.01}}),
        Case(train_by_every_call),
        Case(train_and_flush, {"gradient_merge": True, "gradient_merge_configs": {"k_steps": 4}}),
        Case(train_in_half, {"amp": True}),
        Case(find_a_nan, {"stop_on_nan": True}),
        Case(train_a_program, {**CLIPPED, "recompute": True, "stop_on_nan": True}),
        Case(train, {**MERGED, "a_sync": True, "a_sync_configs": FRESH}, workers=1),
        Case(train, {**MERGED, "a_sync": True, "a_sync_configs": {"k_steps": 1}}, workers=1),
        Case(
            save_merged,
            {"gradient_merge": True, "gradient_merge_configs": {"k_steps": 4}},
            folder=str(tmp_path),
        ),
    ]
    expected = [
        alone(EACH),
        alone(EACH),
        alone(EACH, **CLIPPED),
        alone(EACH, **CLIPPED),
        alone(PAIRS),
        alone(PAIRS, **CLIPPED),
        alone(EACH, gradient_clip=True, gradient_clip_configs={"value": 0.01}),
    ]
    assert not np.array_equal(expected[2]["rows"], expected[0]["rows"])  # the clip does something
    results = run_cases(served, cases)
    for worker, found in enumerate(results):
        for number, wanted in enumerate(expected):
            trained, updates, text, is_the_one = found[number]
            same(trained, wanted, 1e-12)
            merges = number in (4, 5)
            assert updates == ([False, True] * 2 if merges else [True] * 4)
            assert is_the_one
            check_table(text, cases[number])
        for name, value in found[0][0].items():  # the same bits
            np.testing.assert_array_equal(found[1][0][name], value)
        same(found[7], expected[0], 1e-12)
        flushed, count = found[8]
        assert count == 2 - worker
        same(flushed, alone([[(0, 0), (1, 0), (0, 1)]]), 1e-12)
        check_half(*found[9])
        same(found[9][3], results[0][9][3], 0.0)
        first, second, loaded = found[14]  # each worker has its own back
        same(loaded, first, 0.0)
        assert not np.array_equal(first["out.bias"], second["out.bias"])
    assert not np.array_equal(*(found[14][0]["out.bias"] for found in results))
    assert [found[10] for found in results] == [None, True]
    for number in (12, 13):  # async and geo
        same(results[0][number][0], alone(OF_ONE), 1e-12)
    for trained, types, techniques in (found[11] for found in results):
        clip = static.clip.GradientClipByGlobalNorm(CLIP["norm"])
        same(trained, a_program_alone(grad_clip=clip), 1e-7)
        assert types[-6:] == [
            *("send", "send", "send_barrier", "recv", "fetch_barrier", "stop_on_nan")
        ]
        for name in ("recompute", "gradient_clip", "stop_on_nan", "parameter_server"):
            assert name in techniques


def check_table(text: str, case: Case) -> None:
    """Check the rows that explain() prints."""
    assert "2 worker(s)" in text
    for stage in ("grad_sync", "update", "param_sync"):
        assert stage in text
    assert "sync: push" in text
    assert "table(s)" in text
    merges = "gradient_merge" in case.settings
    sent = (7 * 5 + 5 + 5 + 1) * 8 / (2 if merges else 1)
    assert text.count(f" {sent:.0f} B ") == 2  # pushed, and pulled
    assert "the script's" in text
    assert f"on {case.servers}" in text
    for name in case.settings:
        if not name.endswith("_configs"):
            assert name in text


def check_half(first: Any, skipped: Any, losses: Any, last: Any, state: Any) -> None:
    """Check that all workers skip a step that overflows on one, and that training continues."""
    same(skipped, first, 0.0)
    assert losses[-1] < losses[1]
    assert not np.array_equal(last["rows"], first["rows"])
    assert state["bad_steps"] == 0
    assert state["good_steps"] == STEPS


def search_and_train(case: Case, session: Any, worker: int) -> Any:
    """Train a module by what `auto` finds; evaluate it too early first."""
    model = Net()
    wrapped, made = joined(session, model)
    x, ids, _ = batch(0, worker)
    with pytest.raises(RuntimeError, match="train a step before the model is evaluated"):
        wrapped.eval()(x, ids)
    wrapped.train()
    for step in range(STEPS):
        made.zero_grad()
        loss_of(wrapped, step, worker).backward()
        made.step()
    return values(model), session._final_strategy().auto, session._get_applied_meta_list()


@pytest.mark.slow  # starts servers
def test_auto_in_a_job_with_servers_leaves_no_trace_but_its_choice(tmp_path):
    def searching(file: str, **settings: Any) -> dict[str, Any]:
        return {
            "auto": True,
            "auto_configs": {"file": str(tmp_path / file), "steps": 1},
            **settings,
        }

    in_single = {"amp_configs": {"custom_black_list": OPS}}  # amp would round a program
    recompute = {"recompute_configs": {"checkpoints": ["hidden"]}}
    asynchronous = {"a_sync": True, "a_sync_configs": FRESH}
    cases = [
        Case(search_and_train, searching("module", **recompute)),
        Case(train_a_program, searching("program", **in_single)),
        Case(search_and_train, searching("alone", **asynchronous), workers=1),
        Case(train_a_program, searching("4", **in_single, **asynchronous), workers=1),
    ]
    results = run_cases(served, cases)
    for found in results:
        trained, is_on, applied = found[0]
        same(trained, alone(EACH), 1e-12)  # amp leaves double precision as it is
        assert not is_on
        assert applied == results[0][0][2]
        assert "parameter_server" in applied
        same(found[1][0], a_program_alone(), 1e-7)
        assert "send" in found[1][1]
    same(results[0][2][0], alone([[(step, 0)] for step in range(STEPS)]), 1e-12)
    same(results[0][3][0], a_program_alone(workers=1), 1e-7)
    for case in (cases[0], cases[1]):
        kept = json.loads(Path(case.settings["auto_configs"]["file"]).read_text())
        tried = {line["name"]: line["seconds"] for line in kept["tried"]}
        assert kept["job"]["servers"] == 2
        assert tried["as it is"] > 0
        assert tried["amp bfloat16"] > 0
        assert case is not cases[0] or tried["recompute"] > 0
        assert not any("fp16_allreduce" in name for name in tried)  # there is no all-reduce


WORKER = Path(__file__).parent / "workers" / "three_ways.py"


@pytest.mark.slow  # starts servers
def test_programs_merge_and_scale_in_a_job_with_servers():
    geo = {"a_sync": True, "a_sync_configs": {"k_steps": 1}}
    cases = [
        Case(train_a_program, MERGED),
        Case(train_a_program, {**MERGED, **CLIPPED, "recompute": True, "stop_on_nan": True}),
        Case(train_a_program, SCALED),
        Case(train_a_program, SCALED, overflow=(1, 1)),
        Case(train_a_program, {**SCALED, **MERGED}, optimizer="momentum"),
        Case(train_a_program, {**SCALED, **MERGED}),
        Case(train_a_program, {**SCALED, **MERGED}, overflow=(0, 1)),
        Case(train_a_program, {**MERGED, "a_sync": True, "a_sync_configs": FRESH}, workers=1),
        Case(train_a_program, {**MERGED, **geo}, workers=1, optimizer="sgd"),
    ]
    pairs = ((0, 1), (2, 3))
    clip = static.clip.GradientClipByGlobalNorm(CLIP["norm"])
    expected = [
        a_program_alone(groups=pairs),
        a_program_alone(groups=pairs, grad_clip=clip),
        a_program_alone(),
        a_program_alone(groups=((0,), (2,), (3,))),
        a_program_alone("momentum", groups=pairs),
        a_program_alone(groups=pairs),
        a_program_alone(groups=pairs[1:]),
    ]
    assert not np.allclose(expected[0]["table"], expected[2]["table"], rtol=0, atol=1e-4)
    results = run_cases(served, cases)
    for found in results:
        for number, wanted in enumerate(expected):
            same(found[number][0], wanted, 1e-7)
        assert found[3][0]["scale"] == 8.0  # one overflow is not enough to lower it
        merged, scaled = found[0][1], found[2][1]
        assert merged.count("send") == 2
        assert merged[-1] == "fill_constant"
        assert {"check_finite_and_unscale", "agree_on_overflow", "update_loss_scaling"} <= set(
            scaled
        )
        assert scaled[-5:] == ["send", "send", "send_barrier", "recv", "fetch_barrier"]
    for number, kind in ((7, "adagrad"), (8, "sgd")):
        same(results[0][number][0], a_program_alone(kind, pairs, workers=1), 1e-7)


@pytest.mark.slow  # starts jobs
def test_servers_all_reduce_and_one_process_agree(tmp_path):
    jobs = {
        "servers": ("--server_num", "1", "--worker_num", "2"),
        "all-reduce": ("--nproc_per_node", "2"),
        "alone": ("--nproc_per_node", "1"),
    }
    for kind, processes in jobs.items():
        done = subprocess.run(
            [sys.executable, "-m", "fleetx.launch", *processes, WORKER, kind, tmp_path / kind],
            cwd=tmp_path,
            env=warm_start.environment(),
            capture_output=True,
            text=True,
            timeout=LIMIT,
        )
        assert done.returncode == 0, done.stderr[-3000:]
    expected = np.load(tmp_path / "alone.0.npz")
    for name in ("servers.0", "servers.1", "all-reduce.0", "all-reduce.1"):
        same(np.load(tmp_path / f"{name}.npz"), expected, 1e-12)


# -- without processes ----------------------------------------------------------------------------
