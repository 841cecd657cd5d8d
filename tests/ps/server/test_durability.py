"""Nothing lost: kills, restarts, lost messages, saving, damaged logs; compared bit for bit."""

import contextlib
import os
import random
import signal
import subprocess
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from processes import Process, servers
from training import (
    IDS,
    dense_specs,
    first_values,
    make_mode,
    result,
    sparse_spec,
    train,
    worker_process,
)

from fleetx.ps.client.client import Client, ClientSettings, RefusedError
from fleetx.ps.server.journal import Journal
from fleetx.ps.server.snapshots import Durability, Storage
from fleetx.ps.tables.make_table import create_table
from fleetx.ps.tables.row_rules import EvictionSpec
from fleetx.ps.tables.table_files import SavedTable
from fleetx.ps.wire.liveness import PeerLostError
from fleetx.ps.wire.messages import Kind
from waiting import wait_until

pytestmark = pytest.mark.slow  # starts jobs or servers


# The servers also wait so long for workers that have not connected yet, which a busy machine starts
# slowly.
IMPATIENT = {"workers": 2, "lease": 1.0, "worker_wait": 3.0}


def durable(folder, **settings):
    return lambda index: Durability(folder=folder / f"server{index}", **settings)


def same(found, expected):
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert torch.equal(found[name], value), name


def wait_for(path):
    """Wait until a file appears: the sign that a process has come so far."""
    wait_until(Path(path).exists, f"the file {path}")


def train_in_processes(tmp_path, steps, disturb=None, **settings):
    """Train with 2 servers and 2 workers; return worker 0's result."""
    tmp_path.mkdir()
    with servers(
        2,
        log=str(tmp_path / "log"),
        workers=2,
        durability=durable(tmp_path, snapshot_bytes=20_000),
        **settings,
    ) as (endpoints, server_processes):
        workers = [
            Process(worker_process, endpoints, worker, 2, steps, str(tmp_path))
            for worker in range(2)
        ]
        try:
            if disturb is not None:
                disturb(server_processes, workers, tmp_path)
            assert [worker.end() for worker in workers] == [0, 0]
            assert [server.end() for server in server_processes] == [0, 0]
        finally:
            for worker in workers:
                worker.kill()
    same(result(tmp_path, 0), result(tmp_path, 1))
    return result(tmp_path, 0)


@pytest.mark.slow
def test_kills_of_servers_and_workers_do_not_change_a_bit(tmp_path):
    steps = 60
    undisturbed = train_in_processes(tmp_path / "quiet", steps)

    def disturb(server_processes, workers, folder):
        generator = random.Random(11)
        for step in (5, 15, 25, 40):
            wait_for(folder / f"worker{step % 2}-step{step}")
            time.sleep(generator.random() * 0.02)  # somewhere within the step
            victim = generator.choice([*server_processes, *workers])
            victim.kill()
            victim.start()

    same(train_in_processes(tmp_path / "kills", steps, disturb), undisturbed)


@pytest.mark.slow
def test_lost_messages_change_nothing_but_speed():
    def run(drop):
        drops = {"drop": drop, "drop_seed": 5}
        results = {}
        with servers(2, workers=2, **drops) as (endpoints, _):

            def work(worker):
                settings = ClientSettings(resend=0.05, **drops)
                client = Client(endpoints, worker=worker, workers=2, settings=settings)
                mode = make_mode("sync", client, 2)
                results[worker] = train(mode, 15)
                results[worker, "applied"] = [status["applied"] for status in client.status()]
                mode.stop()

            threads = [threading.Thread(target=work, args=(worker,)) for worker in range(2)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        return results

    with_drops, without = run(0.1), run(0.0)
    same(with_drops[0], without[0])
    assert with_drops[1, "applied"][0]["1"] == without[1, "applied"][0]["1"]


def test_asynchronous_pushes_are_neither_lost_nor_doubled_by_kills(tmp_path):
    with servers(1, durability=durable(tmp_path, snapshot_bytes=5000)) as (endpoints, processes):
        client = Client(endpoints)
        client.create(sparse_spec())
        first = client.pull_sparse("rows", torch.arange(IDS))
        ids, ones = torch.arange(IDS), torch.ones(IDS, 4, dtype=torch.float64)
        pending = []
        for number in range(120):
            pending.append(client.start_sparse(Kind.PUSH, "rows", ids, ones, rate=2.0**-10))
            if number in (20, 60, 90):
                pending[number - 15].wait()  # the server is up, and others are under way
                processes[0].kill()
                processes[0].start()
        for each in pending:
            each.wait()
        assert client.status()[0]["applied"] == {"0": 121}
        expected = first.clone()
        for _ in range(120):
            expected -= 2.0**-10
        assert torch.equal(client.pull_sparse("rows", ids), expected)
        assert client.status()[0]["epoch"] == 4
        client.finish()


def test_a_server_without_a_folder_does_not_pretend(tmp_path):
    with servers(1) as (endpoints, processes):
        client = Client(endpoints)
        client.create(sparse_spec())
        processes[0].kill()
        processes[0].start()
        with pytest.raises(PeerLostError, match="without 1 requests that it had acknowledged"):
            client.pull_sparse("rows", torch.arange(3))
        client.close()


def test_saving_and_loading_on_another_number_of_servers(tmp_path):
    with servers(3, workers=1) as (endpoints, _):
        mode = make_mode("sync", Client(endpoints), 3, dense="adam", rows="adagrad")
        expected = train(mode, 4)
        mode.save(tmp_path / "model")
        mode.stop()
    settings = {"durability": durable(tmp_path)}
    with servers(2, workers=1, **settings) as (endpoints, processes):
        client = Client(endpoints)
        client.create(dense_specs(2, "adam"))
        client.create(sparse_spec("adagrad"))
        client.load(tmp_path / "model")
        for process in processes:  # what was loaded survives, too
            process.kill()
            process.start()
        mode = make_mode("sync", client, 2, dense="adam", rows="adagrad")
        found = first_values()
        mode.start(found)
        mode.pull_dense()
        same(found | {"rows": mode.pull_sparse("rows", torch.arange(IDS))}, expected)
        with pytest.raises(RuntimeError, match="could not be loaded"):
            client.load(tmp_path / "nothing")
        mode.stop()


@pytest.mark.slow
def test_a_stopped_worker_is_named_and_ends_the_step(tmp_path):
    settings = {**IMPATIENT, "log": str(tmp_path / "log")}
    with servers(1, **settings) as (endpoints, processes):
        other = Process(worker_process, endpoints, 1, 2, 1000, str(tmp_path))
        mode = make_mode("sync", Client(endpoints, worker=0, workers=2), 1)

        def stop_the_other(step):
            if step == 3:
                wait_for(tmp_path / "worker1-step2")
                other.signal(signal.SIGSTOP)

        with pytest.raises(PeerLostError, match=rf"worker 1 \(process {other.process.pid} on .*\)"):
            train(mode, 1000, stop_the_other)
        assert processes[0].end() == 1
        other.kill()
        mode.client.close()
    assert "has been silent for" in (tmp_path / "log").read_text()


def test_asynchronous_workers_go_on_without_a_dead_one_and_it_may_come_back(tmp_path):
    with servers(1, **IMPATIENT) as (endpoints, processes):
        other = Process(worker_process, endpoints, 1, 2, 10**6, str(tmp_path), "async")
        mode = make_mode("async", Client(endpoints, worker=0, workers=2), 1, max_staleness=2)

        def kill_the_other(step):
            if step == 3:
                wait_for(tmp_path / "worker1-step2")
                other.kill()

        train(mode, 20, kill_the_other)
        again = Client(endpoints, worker=1, workers=2)
        again.create(sparse_spec())
        again.push_sparse("rows", torch.arange(3), torch.ones(3, 4).double())
        again.finish()
        mode.stop()
        assert processes[0].end() == 0


def test_a_folder_belongs_to_one_server(tmp_path):
    storage = Storage(Durability(folder=tmp_path))
    with pytest.raises(RuntimeError, match="in use by another parameter server"):
        Storage(Durability(folder=tmp_path))
    assert storage.epoch == 1
    storage.close()
    with pytest.raises(ValueError, match="fsync='sometimes'"):
        Journal(tmp_path / "x", "sometimes", 1.0)
    assert os.listdir(tmp_path)


@pytest.fixture
def small_disk(tmp_path):
    """Return a folder with room for two megabytes."""
    folder = tmp_path / "small"
    folder.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(folder)], capture_output=True
    )
    if made.returncode:
        pytest.skip("only who may mount file systems can have a small one")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_full_disk_is_named_and_loses_nothing(small_disk):
    rows = torch.ones(2000, 4, dtype=torch.float64)
    ids = torch.arange(2000)
    settings = {"durability": durable(small_disk, snapshot_bytes=300_000)}
    with servers(1, **settings) as (endpoints, processes):
        client = Client(endpoints)
        client.create(sparse_spec())
        for _ in range(10):
            client.push_sparse("rows", ids, rows)
        filler = small_disk / "filler"
        more, reason = pushes_until_full(client, filler, ids, rows)
        assert "server 0" in reason
        assert "cannot log it: [Errno 28] No space left" in reason
        client.close()
        assert processes[0].process.is_alive()
        processes[0].kill()
        filler.unlink()
        assert not list(small_disk.glob("**/*.tmp"))
        processes[0].start()
        client = Client(endpoints)
        client.create(sparse_spec())
        found = client.pull_sparse("rows", ids)
        client.push_sparse("rows", ids, rows)
        client.finish()
    table = create_table(sparse_spec())
    for _ in range(10 + more):
        table.push(ids, rows)
    assert torch.equal(found, table.pull(ids))


def test_rows_on_disk_survive_a_kill_and_go_to_other_servers(tmp_path):
    """A server with memory for few of its rows: log, snapshot, restart, saving and loading."""
    expected, dice = create_table(sparse_spec("adagrad")), torch.Generator().manual_seed(0)
    limited = {"memory": 8192, "spill": str(tmp_path / "spill")}
    saved = str(tmp_path / "saved")

    def push(client):
        ids = torch.randint(0, 4000, (1500,), generator=dice).unique()
        rows = torch.randn(len(ids), 4, generator=dice, dtype=torch.float64)
        client.push_sparse("rows", ids, rows)
        expected.push(ids, rows)

    settings = {"durability": durable(tmp_path, snapshot_bytes=200_000), **limited}
    with servers(1, **settings) as (endpoints, processes):
        client = Client(endpoints)
        client.create(sparse_spec("adagrad"))
        for _ in range(10):
            push(client)
        assert list(tmp_path.glob("server0/snapshot-*"))
        processes[0].kill()
        processes[0].start()
        push(client)
        client.save(saved)
        found = client.pull_sparse("rows", torch.arange(4000))
        client.finish()
    assert torch.equal(found, expected.pull(torch.arange(4000)))
    with servers(2, **limited) as (endpoints, processes):
        client = Client(endpoints)
        client.create(sparse_spec("adagrad"))
        client.load(saved)
        push(client)
        found = client.pull_sparse("rows", torch.arange(4000))
        client.finish()
    assert torch.equal(found, expected.pull(torch.arange(4000)))
    assert not os.listdir(tmp_path / "spill")


def test_a_kill_between_two_searches_for_expired_rows_changes_nothing(tmp_path):
    eviction = EvictionSpec(max_unseen=1, min_score=0.4, score_decay=0.5, every=7)
    spec = replace(sparse_spec("adagrad"), eviction=eviction)
    expected, dice, made = create_table(spec), torch.Generator().manual_seed(0), set()
    settings = durable(tmp_path, snapshot_bytes=20_000)
    with servers(1, durability=settings) as (endpoints, processes):
        client = Client(endpoints)
        client.create(spec)
        for number in range(40):
            ids = torch.randint(0, 600, (100,), generator=dice).unique()
            rows = torch.randn(len(ids), 4, generator=dice, dtype=torch.float64)
            client.push_sparse("rows", ids, rows)
            expected.push(ids, rows)
            made.update(expected.state_dict()["ids"].tolist())
            if number in (17, 30):
                processes[0].kill()
                processes[0].start()
        assert client.status()[0]["epoch"] == 3
        assert list(tmp_path.glob("server0/snapshot-*"))
        saved = str(tmp_path / "saved")
        client.save(saved)
        found = client.pull_sparse("rows", torch.arange(600))
        client.finish()
    assert 0 < len(expected) < len(made)
    assert torch.equal(found, expected.pull(torch.arange(600)))
    _, state = SavedTable(tmp_path / "saved" / "rows").part(0)
    wanted = expected.state_dict()
    order, other = wanted["ids"].argsort(), state["ids"].argsort()
    for name in ("ids", "seen", "score"):
        assert torch.equal(state[name][other], wanted[name][order]), name
    for name in ("clock", "pushes"):
        assert torch.equal(state[name], wanted[name]), name


def test_a_full_disk_for_rows_is_named(small_disk):
    settings = {"memory": 4096, "spill": str(small_disk)}
    with servers(1, **settings) as (endpoints, processes):
        client = Client(endpoints)
        client.create(sparse_spec())
        client.push_sparse("rows", torch.arange(500), torch.ones(500, 4, dtype=torch.float64))
        before = client.pull_sparse("rows", torch.arange(500))
        many = torch.arange(200_000)
        with pytest.raises(RefusedError, match=rf"No space left on device: '{small_disk}/rows-"):
            client.push_sparse("rows", many, torch.ones(len(many), 4, dtype=torch.float64))
        client.close()
        client = Client(endpoints)
        client.create(sparse_spec())
        assert torch.equal(client.pull_sparse("rows", torch.arange(500)), before)
        client.finish()


def pushes_until_full(client, filler, ids, rows):
    """Take all the room that is left; return how many pushes had some all the same, and
    what the next one was refused with."""
    with open(filler, "wb", buffering=0) as stream, contextlib.suppress(OSError):
        while True:
            stream.write(bytes(4096))
    for done in range(200):
        try:
            client.push_sparse("rows", ids, rows)
        except RefusedError as error:
            return done, str(error)
    raise AssertionError("the disk is full, and pushes go on")
