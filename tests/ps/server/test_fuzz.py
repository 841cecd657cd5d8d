"""No message of a peer ends a server or raises an unexpected error."""

import random
import tempfile
from pathlib import Path

import pytest
import torch
from fuzz import Attacker
from hypothesis import given, settings
from hypothesis import strategies as st
from training import dense_specs

from fleetx.ps.server.request_handler import RequestHandler
from fleetx.ps.wire import messages as wire
from fleetx.ps.wire.assembly import parts
from fleetx.ps.wire.messages import Flag, Header, Kind, Problem


@settings(max_examples=20, deadline=None, derandomize=True)
@given(st.integers(0, 2**32), st.integers(1, 40))
def test_hostile_messages_are_answered_and_the_log_replays(seed, count):
    with tempfile.TemporaryDirectory() as folder:
        attacker = Attacker(random.Random(seed), Path(folder))
        attacker.attack(count)
        attacker.finish()


@pytest.fixture
def attacker(tmp_path):
    made = Attacker(random.Random(3), tmp_path)
    yield made
    made.handler.close()


def request(attacker, kind, tensors, **fields):
    fields = {"worker": 1, "incarnation": 5, "epoch": attacker.handler.epoch} | fields
    attacker.send(1, parts(Header(kind, **fields), tensors))
    return attacker.out.last[b"liar"]


def test_a_repeated_push_that_asks_for_unknown_blocks_is_refused(attacker):
    flags = Flag.FETCH
    reply = request(attacker, Kind.PUSH, [(99, torch.ones(3))], flags=flags, sequence=0)
    assert (reply.kind, reply.problem) == (Kind.ERROR, Problem.MALFORMED)
    ones = [(0, torch.ones(36, dtype=torch.float64))]
    request(attacker, Kind.PUSH, ones, flags=flags, sequence=1)
    reply = request(attacker, Kind.PUSH, [(99, torch.ones(3))], flags=flags, sequence=1)
    assert reply.kind == Kind.ERROR
    reply = request(attacker, Kind.COMMIT, [], flags=flags, sequence=2)
    assert (reply.kind, reply.problem) == (Kind.ERROR, Problem.BAD_REQUEST)
    assert attacker.handler.unexpected == 0


def test_an_unexpected_exception_is_answered_and_logged_with_the_peer(attacker, caplog):
    attacker.handler.state.changed = None  # a defect: calling it is a TypeError
    reply = request(attacker, Kind.CHANGED, [], table=1)
    assert (reply.kind, reply.problem) == (Kind.ERROR, Problem.INTERNAL)
    assert attacker.handler.unexpected == 1
    assert f"worker 1, a peer ({b'liar'.hex()})" in caplog.text
    assert "TypeError" in caplog.text
    assert request(attacker, Kind.STATUS, []).kind == Kind.DONE


def test_waiting_requests_of_a_worker_are_bounded(attacker):
    ids = [(0, torch.zeros(20_000_000, dtype=torch.int64))]
    frames = parts(Header(Kind.PULL), ids)  # only to see that they come in parts
    assert len(frames) > 1
    kinds = [
        request(attacker, Kind.PULL, ids, table=1, step=9, request=number).kind
        for number in range(1, 4)
    ]
    assert Kind.ERROR in kinds


def test_barriers_far_ahead_are_refused(attacker):
    reply = request(attacker, Kind.ARRIVE, [], step=2**40, sequence=1)
    assert (reply.kind, reply.problem) == (Kind.ERROR, Problem.BAD_REQUEST)


@pytest.mark.parametrize("flags", [Flag.NONE, Flag.SYNC])
@pytest.mark.parametrize("counts", [[0, 1], [-5, 1], [2**62, 2**62]])
def test_counts_that_cannot_be_summed_are_refused_before_they_are_logged(attacker, flags, counts):
    # Accepted, they failed in the middle of a step, which then never ended.
    rows = [(0, torch.tensor([1, 1])), (1, torch.ones(2, 4, dtype=torch.float64))]
    rows.append((2, torch.tensor(counts)))
    reply = request(attacker, Kind.PUSH, rows, flags=flags, table=1, step=0, sequence=1)
    assert (reply.kind, reply.problem) == (Kind.ERROR, Problem.BAD_REQUEST)
    for worker in range(2):
        due = attacker.handler.state.applied[worker] + 1
        request(attacker, Kind.COMMIT, [], worker=worker, step=0, sequence=due)
    assert attacker.handler.state.sync.version == 1
    assert not attacker.out.failed


def test_a_load_within_a_step_keeps_what_has_arrived_of_the_step(attacker, tmp_path):
    # The snapshot that a load takes, refused or not, lacked acknowledged gradients.
    ones = [(0, torch.ones(12, 3, dtype=torch.float64))]
    assert request(attacker, Kind.PUSH, ones, flags=Flag.SYNC, step=0, sequence=1).kind == Kind.DONE
    assert request(attacker, Kind.COMMIT, [], step=0, sequence=2).kind == Kind.DONE
    path = wire.json_body({"path": str(tmp_path / "none")})
    assert request(attacker, Kind.LOAD, path, worker=0, sequence=3).kind == Kind.ERROR
    attacker.finish()
    restarted = RequestHandler(attacker.settings)
    restarted.connect(attacker.out)
    attacker.handler = restarted
    attacker.send(0, parts(Header(Kind.HELLO, incarnation=6), wire.json_body({"workers": 2})))
    commit = Header(Kind.COMMIT, incarnation=6, epoch=restarted.epoch, step=0, sequence=4)
    attacker.send(0, parts(commit, []))
    assert restarted.state.sync.version == 1
    expected = torch.full((12, 3), -0.1 / 2, dtype=torch.float64)  # the mean of two workers
    assert torch.equal(restarted.state.tables[0].pull("w"), expected)


@pytest.mark.parametrize("name", ["\ud800", "a\0b"])
def test_names_of_tables_can_be_written(attacker, name):
    body = wire.json_body(dense_specs(1)[0].to_dict() | {"name": name})
    reply = request(attacker, Kind.CREATE, body, sequence=1)
    assert (reply.kind, reply.problem) == (Kind.ERROR, Problem.BAD_REQUEST)


def test_a_table_larger_than_the_machine_is_refused_before_it_is_logged(attacker):
    values = dense_specs(1)[0].to_dict() | {"name": "huge"}
    values["blocks"][0]["shape"] = [2**40]
    reply = request(attacker, Kind.CREATE, wire.json_body(values), sequence=1)
    assert (reply.kind, reply.problem) == (Kind.ERROR, Problem.TOO_LARGE)
    assert not attacker.out.failed
