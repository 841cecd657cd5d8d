"""Elastic servers: except in synchronous training, they continue without lost workers."""

import signal

import pytest
import torch
from processes import Process, servers
from starter import starter
from training import sparse_spec

from fleetx.ps.client.client import Client
from fleetx.ps.server.snapshots import Durability
from fleetx.ps.wire.liveness import PeerLostError

pytestmark = pytest.mark.slow  # starts servers

LOST = {"workers": 2, "lease": 1.0, "worker_wait": 3.0, "elastic": True}


def joined(endpoints, worker):
    client = Client(endpoints, worker=worker, workers=2)
    client.create(sparse_spec())
    return client


def test_others_go_on_without_a_worker_until_it_comes_back(tmp_path):
    ids, ones = torch.arange(3), torch.ones(3, 4).double()
    durability = Durability(folder=tmp_path)
    with servers(1, durability=durability, **LOST) as (endpoints, processes):
        stays, goes = joined(endpoints, 0), joined(endpoints, 1)
        first = stays.pull_sparse("rows", ids)
        goes.push_sparse("rows", ids, ones, rate=0.5)
        goes.close()  # without a word, as a killed process
        stays.barrier()
        assert stays.status()[0]["finished"] == [1]
        processes[0].kill()
        processes[0].start()
        assert stays.status()[0]["finished"] == [1]
        back = joined(endpoints, 1)
        assert stays.status()[0]["finished"] == []
        back.push_sparse("rows", ids, ones, rate=0.5)
        torch.testing.assert_close(stays.pull_sparse("rows", ids), first - 1)
        stays.finish()
        back.close()
        assert processes[0].end() == 0


def _pushes_when_told(endpoints, pipe):
    client = joined(endpoints, 1)
    pipe.send("joined")
    pipe.recv()
    try:
        client.push_sparse("rows", torch.arange(3), torch.ones(3, 4).double(), rate=0.5)
        pipe.send("pushed")
    except PeerLostError as error:
        pipe.send(str(error))


def test_a_worker_that_was_frozen_for_too_long_is_told_so_and_loses_no_push_in_silence():
    with servers(1, **LOST) as (endpoints, processes):
        stays = joined(endpoints, 0)
        first = stays.pull_sparse("rows", torch.arange(3))
        here, there = starter.Pipe()
        frozen = Process(_pushes_when_told, endpoints, there)
        assert here.recv() == "joined"
        frozen.signal(signal.SIGSTOP)
        stays.barrier()
        frozen.signal(signal.SIGCONT)
        here.send("push")
        assert "have continued without worker 1" in here.recv()
        assert frozen.end() == 0
        torch.testing.assert_close(stays.pull_sparse("rows", torch.arange(3)), first)
        assert stays.status()[0]["finished"] == [1]
        stays.finish()
        assert processes[0].end() == 0


def test_a_job_without_any_worker_ends():
    with servers(1, **LOST) as (endpoints, processes):
        for worker in range(2):
            joined(endpoints, worker).close()
        assert processes[0].end() == 1


def test_synchronous_training_does_not_go_on_without_a_worker():
    with servers(1, **LOST) as (endpoints, processes):
        stays, goes = joined(endpoints, 0), joined(endpoints, 1)
        goes.close()
        for future in stays.start_commit(0):
            future.result()
        with pytest.raises(PeerLostError, match="worker 1 .* has been missing"):
            stays.wait_for_step(1)
        stays.close()
        assert processes[0].end() == 1
