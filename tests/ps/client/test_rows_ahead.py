"""Rows of the next batch are prefetched while the current one computes, without other numbers."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from jobs import role, run_cases
from processes import servers
from programs import STEPS, batch, fresh, joined, network, optimizer, strategy
from training import make_mode

from fleetx import fleet, static
from fleetx.ps.client.client import Client
from fleetx.ps.client.row_fetcher import RowFetcher
from fleetx.ps.modes.server_mode import ServerMode
from fleetx.static.readers.background_reading import BackgroundIterator
from fleetx.static.readers.loader import DataLoader
from waiting import LIMIT

pytestmark = pytest.mark.usefixtures("fresh_fleet", "fresh_graph")

NAMES = ("x", "y", "ids")
ONES = torch.ones(3, 4).double()


@pytest.fixture(params=["sync", "async", "geo"])
def mode(request):
    settings = {"async": {"max_staleness": 0}, "geo": {"k_steps": 2}}.get(request.param, {})
    with servers(2) as (endpoints, _):
        made = make_mode(request.param, Client(endpoints), 2, **settings)
        made.start({"w": torch.zeros(12, 3).double(), "b": torch.zeros(3).double()})
        yield made
        made.stop()


def rows(fetch):
    return fetch.rows.wait()[fetch.places]


def end_step(mode, ids):
    mode.push_sparse("rows", ids, ONES)
    mode.step_end()


def test_rows_asked_for_ahead_are_those_after_the_step(mode):
    fetcher, ids = RowFetcher(mode), torch.tensor([3, 9, 3])
    before = rows(fetcher.fetch("rows", ids))
    fetcher.expect("rows", ids)
    ahead = fetcher._expected["rows"][0].fetch
    end_step(mode, ids)
    found = fetcher.fetch("rows", ids)
    assert found is ahead
    # Row 3 has the gradients of two places.
    expected = before - 0.2 * torch.tensor([[2.0], [1.0], [2.0]])
    assert torch.allclose(rows(found), expected)
    assert fetcher.fetch("rows", ids) is not ahead  # used once


def test_rows_asked_for_ahead_are_not_used_in_this_step(mode):
    # Two equal batches, one after the other: the first must not wait for what it has to do itself.
    fetcher, ids = RowFetcher(mode), torch.tensor([5, 6, 7])
    fetcher.expect("rows", ids)
    first = rows(fetcher.fetch("rows", ids))
    end_step(mode, ids)
    assert torch.allclose(rows(fetcher.fetch("rows", ids)), first - 0.2)
    end_step(mode, ids)


def test_other_ids_than_expected_are_fetched_anew(mode):
    fetcher, ids = RowFetcher(mode), torch.tensor([5, 6, 7])
    told = ids.clone()
    fetcher.expect("rows", told)
    told += 10  # a script that changes its batch in place
    end_step(mode, ids)
    expected = mode.pull_sparse("rows", told)
    assert torch.equal(rows(fetcher.fetch("rows", told)), expected)
    assert not torch.equal(rows(fetcher.fetch("rows", ids)), expected)


def test_what_was_never_used_keeps_nobody_from_ending(mode):
    RowFetcher(mode).expect("rows", torch.tensor([1, 2]))


def test_new_rows_of_geo_miss_no_change_of_others():
    with servers(1, workers=2) as (endpoints, _):
        modes = [
            make_mode("geo", Client(endpoints, worker=w, workers=2), 1, k_steps=1) for w in range(2)
        ]
        for mode in modes:
            mode.start({"w": torch.zeros(12, 3).double(), "b": torch.zeros(3).double()})
        fetcher, ids = RowFetcher(modes[0]), torch.tensor([1, 2, 3])
        fetcher.expect("rows", ids)
        modes[0].client.status()  # after the request for rows, so that it has been answered
        end_step(modes[1], ids)
        modes[1].settle()
        modes[0].step_end()  # brings the news of rows that are not known here yet
        modes[0].settle()
        at_servers = modes[1].client.pull_sparse("rows", ids)
        assert torch.allclose(rows(fetcher.fetch("rows", ids)), at_servers)
        # What was learned meanwhile has gone on here and is not overwritten.
        other = torch.tensor([11, 12, 13])
        fetcher.expect("rows", other)
        first = modes[0].pull_sparse("rows", other)
        end_step(modes[0], other)
        assert torch.allclose(rows(fetcher.fetch("rows", other)), first - 0.2)
        for mode in modes:
            mode.stop()


# -- programs ---------------------------------------------------------------------------------
@dataclass
class Case:
    """One training run; `source` says who knows the next batch."""

    servers: int = 2
    workers: int = 1
    mode: Any = "sync"
    source: str = "loader"
    sparse: str = "is_sparse"
    clips: bool = False
    endpoints: tuple[str, ...] = ()


class Asked:
    """Counts who asks a mode for rows."""

    def __init__(self, mode: Any) -> None:
        self.ahead = self.late = 0
        in_time, ahead = mode.start_pull_sparse, mode.start_pull_ahead

        def count(kind: str, ask: Any) -> Any:
            def counted(*arguments: Any) -> Any:
                setattr(self, kind, getattr(self, kind) + 1)
                return ask(*arguments)

            return counted

        mode.start_pull_sparse = count("late", in_time)
        mode.start_pull_ahead = count("ahead", ahead)


class Batches:
    """A worker's batches in a row; an event tells that all of them have been read ahead."""

    def __init__(self, worker: int) -> None:
        self._worker = worker
        self._all_read = threading.Event()

    def __call__(self) -> Any:
        for step in range(STEPS):
            yield batch(step, self._worker)
        self._all_read.set()

    def arrays(self) -> Any:
        for feed in self():
            yield [feed[name] for name in NAMES]

    def __iter__(self) -> Any:
        """Give feeds as a dataset does."""
        found = BackgroundIterator(self, STEPS)
        self.wait()
        return found

    def wait(self) -> None:
        assert self._all_read.wait(LIMIT)


def _run_all(source: str, batches: Batches, executor: Any, loss: Any) -> None:
    """Run all steps with batches that are read ahead."""
    if source == "dataset":
        executor.train_from_dataset(fleet.main_program, batches, fetch_list=[loss])
        return
    variables = [fleet.main_program.global_block().var(name) for name in NAMES]
    iterable = source == "loader"
    with static.program_guard(fleet.main_program):
        loader = DataLoader.from_generator(variables, capacity=STEPS, iterable=iterable)
    loader.set_batch_generator(batches.arrays, places=static.CPUPlace() if iterable else None)
    if iterable:
        for feed in loader():
            batches.wait()
            executor.run(fleet.main_program, feed=feed, fetch_list=[loss])
        return
    loader.start()
    batches.wait()
    for _ in range(STEPS):
        executor.run(fleet.main_program, fetch_list=[loss])
    loader.reset()


def trained(case: Case, worker: int) -> tuple[dict[str, Any], tuple[int, int]]:
    fresh()
    with static.scope_guard(static.Scope()):
        fleet.init(role(fleet.Role.WORKER, worker, case))
        loss, _ = network(case.sparse)
        chosen = case.mode if isinstance(case.mode, ServerMode) else strategy(case.mode)
        made = optimizer("sgd", **_clip(case))
        fleet.distributed_optimizer(made, chosen).minimize(loss)
        fleet.init_worker()
        executor = static.Executor()
        executor.run(fleet.startup_program)
        link = fleet.main_program.binding.servers
        asked = Asked(link.mode)
        _run_all(case.source, Batches(worker), executor, loss)
        found = {n: static.global_scope().find_var(n).value.numpy().copy() for n in ("w0", "w1")}
        found["table"] = link.whole_table("table").numpy().copy()
        fleet.stop_worker()
    return found, (asked.ahead, asked.late)


def _clip(case: Case) -> dict[str, Any]:
    return {"grad_clip": static.clip.GradientClipByGlobalNorm(0.3)} if case.clips else {}


def alone(case: Case) -> dict[str, Any]:
    fresh()
    with static.scope_guard(static.Scope()):
        loss, _ = network(case.sparse)
        optimizer("sgd", **_clip(case)).minimize(loss)
        executor = static.Executor()
        executor.run(static.default_startup_program())
        for step in range(STEPS):
            executor.run(feed=joined(step, case.workers), fetch_list=[loss])
        names = ("w0", "w1", "table")
        return {n: static.global_scope().find_var(n).value.numpy().copy() for n in names}


@pytest.mark.slow
def test_programs_ask_for_the_rows_of_the_next_batch():
    cases = [
        Case(2, 2),
        Case(1, 1, source="program"),
        Case(2, 2, source="dataset"),
        Case(2, 1, "async", "dataset"),
        Case(2, 1, "geo", "program"),
        Case(2, 1, ServerMode(kind="half_async")),
        Case(2, 2, clips=True),
    ]
    results = run_cases(trained, cases)
    for number, case in enumerate(cases):
        expected = alone(case)
        ahead = 0 if case.clips or isinstance(case.mode, ServerMode) else STEPS - 1
        for worker in range(case.workers):
            found, asked = results[worker][number]
            assert asked == (ahead, STEPS - ahead), case
            for name, value in expected.items():
                np.testing.assert_allclose(found[name], value, rtol=0, atol=1e-10, err_msg=case)
