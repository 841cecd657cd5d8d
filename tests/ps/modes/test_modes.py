"""Modes: sync equals training in one process, async and geo with one worker do too; merging."""

import signal
import threading

import pytest
import torch
from processes import servers
from training import IDS, make_mode, sparse_spec, train, train_alone

from fleetx.ps.client.client import Client
from fleetx.ps.modes.mode import Batch
from fleetx.ps.tables.make_table import create_table

pytestmark = pytest.mark.slow  # starts jobs or servers

STEPS = 6


def run(mode, server_count, workers, settings=None, steps=STEPS):
    """Train with workers as threads; return every worker's last values."""
    results, errors = {}, []
    with servers(server_count, workers=workers) as (endpoints, processes):

        def work(worker):
            try:
                client = Client(endpoints, worker=worker, workers=workers)
                made = make_mode(mode, client, server_count, **(settings or {}))
                results[worker] = train(made, steps)
                made.stop()
            except Exception as error:
                errors.append(error)
                raise

        threads = [threading.Thread(target=work, args=(w,), daemon=True) for w in range(workers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not errors
        assert [process.end() for process in processes] == [0] * server_count
    return results


def equal(found, expected, tolerance=1e-10):
    for name, value in expected.items():
        assert torch.allclose(found[name], value, rtol=0, atol=tolerance), name


@pytest.mark.parametrize(
    ("server_count", "workers", "dense", "rows", "sliced"),
    [
        (1, 1, "sgd", "sgd", True),
        (2, 3, "adam", "adagrad", True),
        (3, 2, "momentum", "adam", True),
        (2, 2, "lamb", "ftrl", False),
        (3, 2, "adam+clip", "sgd+clip", True),
        (1, 2, "sgd+clip", "adagrad+clip", True),
    ],
)
def test_sync_is_training_in_one_process(server_count, workers, dense, rows, sliced):
    settings = {"dense": dense, "rows": rows, "sliced": sliced}
    results = run("sync", server_count, workers, settings)
    expected = train_alone(STEPS, workers, dense, rows)
    for worker in range(workers):
        equal(results[worker], expected)


@pytest.mark.parametrize(
    ("mode", "settings"),
    [
        ("async", {"max_staleness": 0, "dense": "sgd+clip", "rows": "sgd+clip"}),
        ("half_async", {}),
        ("geo", {"k_steps": 1}),
    ],
)
def test_one_worker_alone_trains_as_without_servers(mode, settings):
    kinds = {name: settings[name] for name in ("dense", "rows") if name in settings}
    equal(run(mode, 2, 1, settings)[0], train_alone(STEPS, 1, **kinds))


def test_asynchronous_workers_all_count():
    # Gradients that do not depend on the values: whatever the order, the sum is known.
    with servers(2, workers=2) as (endpoints, _):

        def work(worker):
            client = Client(endpoints, worker=worker, workers=2)
            settings = {"max_merge_var_num": 3, "send_queue_size": 2}
            mode = make_mode("async", client, 2, **settings)
            values = {"w": torch.zeros(12, 3, dtype=torch.float64), "b": torch.zeros(3).double()}
            mode.start(values)
            for _ in range(20):
                mode.pull_dense()
                mode.push_dense({"w": torch.ones(12, 3).double()})
                mode.push_sparse(
                    "rows", torch.tensor([1, 1, 2 + worker]), torch.ones(3, 4).double()
                )
                mode.step_end()
            clients[worker] = mode

        clients = {}
        threads = [threading.Thread(target=work, args=(worker,)) for worker in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        clients[0]._enqueue(None)
        clients[0]._sender.join()
        clients[1].stop()
        found = clients[0].client.pull_dense("dense")
        total = torch.cat([found[name].reshape(-1) for name in sorted(found) if name[0] == "w"])
        assert torch.allclose(total, torch.full((36,), -0.1 * 40).double())
        rows = clients[0].client.pull_sparse("rows", torch.arange(5))
        clients[0].client.finish()
    first = create_table(sparse_spec()).pull(torch.arange(5))
    pushes = torch.tensor([0, 80, 20, 20, 0]).double()
    assert torch.allclose(rows, first - 0.2 * pushes[:, None])


def test_merged_gradients_are_summed_or_averaged():
    one, two = Batch(), Batch()
    one.add_dense("d", {"a": torch.ones(2)}, 0.1)
    two.add_dense("d", {"a": torch.ones(2) * 3, "b": torch.ones(1)}, 0.2)
    one.add_sparse("s", torch.tensor([1, 2]), torch.ones(2, 2), None)
    two.add_sparse("s", torch.tensor([2]), torch.ones(1, 2), None)
    one.add(two)
    assert one.dense["d"]["a"].tolist() == [4.0, 4.0]
    assert one.rates == {"d": 0.2, "s": None}
    one.average()
    assert one.dense["d"]["a"].tolist() == [2.0, 2.0]
    ids, rows = one.rows("s")
    assert dict(zip(ids.tolist(), rows[:, 0].tolist(), strict=True)) == {1: 0.5, 2: 1.0}


def test_half_async_adds_up_the_threads_of_a_worker():
    with servers(1) as (endpoints, _):
        client = Client(endpoints)
        mode = make_mode("half_async", client, 1, threads=2)
        values = {"w": torch.zeros(12, 3, dtype=torch.float64), "b": torch.zeros(3).double()}
        mode.start(values)

        def work(factor):
            for _ in range(3):
                mode.push_dense({"b": torch.full((3,), factor).double()})
                mode.step_end()

        threads = [threading.Thread(target=work, args=(f,)) for f in (1.0, 2.0)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert torch.allclose(values["b"], torch.full((3,), -0.9).double())
        assert client.status()[0]["applied"] == {"0": 6}
        mode.stop()


def test_geo_moves_only_touched_rows_and_reaches_everybody():
    with servers(2, workers=2) as (endpoints, _):
        modes = []
        for worker in range(2):
            client = Client(endpoints, worker=worker, workers=2)
            modes.append(make_mode("geo", client, 2, k_steps=2))
        starters = [
            threading.Thread(
                target=m.start,
                args=({"w": torch.zeros(12, 3).double(), "b": torch.zeros(3).double()},),
            )
            for m in modes
        ]
        for starter in starters:
            starter.start()
        for starter in starters:
            starter.join()
        ids = torch.arange(IDS)
        first = modes[0].pull_sparse("rows", ids)
        modes[1].pull_sparse("rows", ids)
        for _ in range(2):
            modes[0].push_sparse("rows", torch.tensor([3, 4, 3]), torch.ones(3, 4).double())
            modes[0]._parameters["b"].sub_(1.0)
            modes[0].step_end()
        modes[0].settle()
        # Worker 0 went 2 * 2 * 0.2 in row 3; half of it, divided by the workers, is at the servers.
        at_servers = modes[0].client.pull_sparse("rows", ids)
        expected = first.clone()
        expected[3] -= 0.4
        expected[4] -= 0.2
        assert torch.allclose(at_servers, expected)
        assert sorted(modes[1].client.changed("rows")[0].tolist()) == [3, 4]
        for _ in range(2):
            modes[1].push_sparse("rows", torch.tensor([5]), torch.ones(1, 4).double())
            modes[1].step_end()
        modes[1].settle()
        assert torch.allclose(modes[1]._parameters["b"], torch.full((3,), -1.0).double())
        assert modes[0].client.changed("rows")[0].tolist() == [5]
        assert modes[0].client.changed("rows")[0].tolist() == []
        for mode in modes:
            mode.stop()


def test_geo_trains_on_while_servers_take_their_time():
    with servers(1) as (endpoints, (process,)):
        mode = make_mode("geo", Client(endpoints), 1, k_steps=2)
        values = {"w": torch.zeros(12, 3).double(), "b": torch.zeros(3).double()}
        mode.start(values)
        ids = torch.tensor([1, 2, 3])
        first = mode.pull_sparse("rows", ids)

        def step():
            mode.push_sparse("rows", ids, torch.ones(3, 4).double())
            values["b"].sub_(1.0)
            mode.step_end()

        process.signal(signal.SIGSTOP)
        for _ in range(3):  # begins an exchange after the second
            step()
        assert torch.allclose(mode.pull_sparse("rows", ids), first - 0.6)
        process.signal(signal.SIGCONT)
        step()
        mode.settle()
        with pytest.raises(
            RuntimeError, match=r"start the job again with fleet.init_server\('a'\)"
        ):
            mode.load("a/servers", asks_servers=True)
        assert torch.allclose(mode.client.pull_sparse("rows", ids), first - 0.8)
        assert torch.allclose(values["b"], torch.full((3,), -4.0).double())
        mode.stop()


def test_staleness_makes_the_fast_wait_for_the_slow():
    with servers(1, workers=2) as (endpoints, _):
        modes = [
            make_mode("async", Client(endpoints, worker=w, workers=2), 1, max_staleness=1)
            for w in range(2)
        ]
        values = [{"w": torch.zeros(12, 3).double(), "b": torch.zeros(3).double()} for _ in modes]
        for mode, value in zip(modes, values, strict=True):
            mode.start(value)

        def step(mode):
            mode.pull_dense()
            mode.push_dense({"b": torch.ones(3).double()})
            mode.step_end()

        step(modes[0])
        step(modes[0])
        fast = modes[0].client
        third = fast.start_pull_dense("dense", modes[0]._views["dense"], **modes[0]._freshness())
        # Requests are looked at in order: the answer to a later one shows that this one waits.
        fast.status()
        assert not third.is_done
        step(modes[1])
        third.wait()
        # One push of worker 1, and two of worker 0, of which the last need not be there yet.
        assert values[0]["b"][0].item() in (pytest.approx(-0.2), pytest.approx(-0.3))
        for mode in modes:
            mode.stop()
