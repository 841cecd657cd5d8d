"""A real server and its clients: values, shared memory and not, refusals, keys."""

import contextlib
import random
import socket
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import zmq
from processes import servers

from fleetx.ps.client.client import Client, ClientSettings, RefusedError
from fleetx.ps.server.server import Server, ServerSettings
from fleetx.ps.tables.row_rules import EvictionSpec
from fleetx.ps.tables.spec_checks import SpecError
from fleetx.ps.tables.table_spec import BlockSpec, DenseTableSpec, OptimizerSpec, SparseTableSpec
from fleetx.ps.wire import messages as wire
from fleetx.ps.wire.assembly import parts
from fleetx.ps.wire.liveness import PeerLostError
from fleetx.ps.wire.messages import Header, Kind
from fleetx.ps.wire.security import is_loopback, make_keys
from ports import free_endpoints
from waiting import wait_until

pytestmark = pytest.mark.slow  # starts jobs or servers

SPARSE = SparseTableSpec(name="rows", dim=4, optimizer=OptimizerSpec(kind="sgd", rate=0.5))


def dense(*blocks):
    return DenseTableSpec(
        name="dense",
        blocks=tuple(BlockSpec(name=name, parameter=name, shape=shape) for name, shape in blocks),
        optimizer=OptimizerSpec(kind="sgd", rate=0.1),
    )


def train_a_little(client):
    """Push and pull known values on two servers; large ones, so that they go in parts."""
    client.create([dense(("a", (700, 3000)), ("b", (2,))), dense(("c", (5,)))])
    client.create(SPARSE)
    first = {"a": torch.randn(700, 3000), "b": torch.ones(2), "c": torch.arange(5.0)}
    client.set_dense("dense", first)
    client.set_dense("dense", {"b": torch.zeros(2)})
    for _ in range(2):
        client.push_dense("dense", {name: torch.ones_like(v) for name, v in first.items()})
    client.push_dense("dense", {"b": torch.ones(2)}, rate=1.0)
    found = client.pull_dense("dense")
    assert torch.allclose(found["a"], first["a"] - 0.2)
    assert torch.allclose(found["b"], torch.full((2,), -0.2))
    assert torch.allclose(found["c"], first["c"] - 0.2)
    ids = torch.arange(-40_000, 40_000).reshape(2, -1)
    assert client.pull_sparse("rows", ids).shape == (2, 40_000, 4)
    client.push_sparse("rows", torch.tensor([7, 8, 7]), torch.ones(3, 4))
    rows = client.pull_sparse("rows", torch.tensor([7, 8, 9, 7]))
    assert rows[:, 0].tolist() == [-1.0, -0.5, 0.0, -1.0]
    client.push_sparse("rows", ids, torch.ones(*ids.shape, 4))
    assert torch.all(client.pull_sparse("rows", ids)[0] == -0.5)


@pytest.mark.parametrize("shared", [True, False])
def test_values_and_rows_on_two_servers(shared):
    with servers(2) as (endpoints, processes):
        client = Client(endpoints, settings=ClientSettings(shared_memory=shared))
        train_a_little(client)
        assert [status["refused"] for status in client.status()] == [0, 0]
        client.finish()
        assert [process.end() for process in processes] == [0, 0]


@pytest.mark.parametrize("shared", [True, False])
def test_a_push_brings_the_new_values_back(shared):
    # The second part is large enough for shared memory.
    shapes = {"a": (2,), "b": (200, 200)}
    with servers(1) as (endpoints, _):
        client = Client(endpoints, settings=ClientSettings(shared_memory=shared))
        blocks = [BlockSpec(name=n, parameter=n, shape=shape) for n, shape in shapes.items()]
        spec = DenseTableSpec(
            name="d", blocks=tuple(blocks), optimizer=OptimizerSpec(kind="sgd", rate=0.5)
        )
        client.create([spec])
        client.set_dense("d", {n: torch.ones(shape) for n, shape in shapes.items()})
        out = {n: torch.empty(shape) for n, shape in shapes.items()}
        gradients = {n: torch.full(shape, 2.0) for n, shape in shapes.items()}
        client.start_dense(Kind.PUSH, "d", gradients, out=out).wait()
        assert all((value == 0).all() for value in out.values())
        client.start_dense(Kind.PUSH, "d", {"b": gradients["b"]}, out=out).wait()
        assert (out["a"] == 0).all()
        assert (out["b"] == -1).all()
        client.finish()


def test_requests_that_do_not_fit_are_refused_and_the_server_goes_on():
    with servers() as (endpoints, _):
        client = Client(endpoints)
        client.create([dense(("a", (2, 2)))])
        client.create(SPARSE)
        with pytest.raises(RefusedError, match=r"shape \(2, 2\), not \(3,\)"):
            client.push_dense("dense", {"a": torch.ones(3)})
        with pytest.raises(RefusedError, match="holds float32, not torch.float64"):
            client.push_dense("dense", {"a": torch.ones(2, 2, dtype=torch.float64)})
        with pytest.raises(RefusedError, match="described differently"):
            client.create([dense(("a", (3, 3)))])
        with pytest.raises(RefusedError, match=r"no table 99; this server has \['dense', 'rows'\]"):
            client._ask(0, Kind.PUSH, [(0, torch.ones(1))], table=99).result()
        with pytest.raises(RefusedError, match="dim from 1"):
            client._ask(0, Kind.CREATE, wire.json_body({**SPARSE.to_dict(), "dim": -1})).result()
        never = replace(SPARSE, name="never", eviction=EvictionSpec(max_unseen=5))
        with pytest.raises(RefusedError, match="'never' has max_unseen=5, .*: set every"):
            client._ask(0, Kind.CREATE, wire.json_body(never.to_dict())).result()
        with pytest.raises(SpecError, match="'never' has max_unseen=5, .*: set every"):
            client.create(never)
        with (
            closing(Client(endpoints, worker=3, workers=4)) as stranger,
            pytest.raises(RefusedError, match="a job with 1 workers"),
        ):
            stranger.welcomes()
        client.push_dense("dense", {"a": torch.ones(2, 2)})
        assert torch.allclose(client.pull_dense("dense")["a"], torch.full((2, 2), -0.1))
        assert client.status()[0]["applied"] == {"0": 9}
        client.finish()


def test_random_bytes_do_not_stop_a_server(tmp_path):
    generator = random.Random(5)
    log = tmp_path / "log"
    with servers(log=str(log)) as (endpoints, processes):
        client = Client(endpoints)
        client.create(SPARSE)
        context = zmq.Context()
        stranger = context.socket(zmq.DEALER)
        stranger.linger = 0
        stranger.connect(f"tcp://{endpoints[0]}")
        tensors = [(0, torch.arange(5)), (1, torch.ones(5, 4))]
        epoch = client.status()[0]["epoch"]
        link = client._network.links[0]
        for number in range(3000):
            header = Header(
                generator.choice(list(Kind)),
                worker=generator.choice([0, 0, 0, 3]),
                incarnation=link.incarnation,
                epoch=epoch,
                sequence=generator.randrange(4),
                step=generator.randrange(-1, 3),
            )
            if header.kind in (Kind.STOP, Kind.FINISH):
                header.worker = 3
            frames = [bytearray(frame) for frame in parts(header, tensors)[0]]
            for _ in range(generator.choice([0, 1, 1, 4])):
                frame = generator.choice(frames)
                # Not the kind: a STOP of the right worker is not noise.
                at = generator.randrange(len(frame))
                if frame and not (frame is frames[0] and at == 6):
                    frame[at] = generator.randrange(256)
            if number % 10 == 0:
                frames = [generator.randbytes(generator.randrange(200)) for _ in range(3)]
            stranger.send_multipart(frames)
        oversized = context.socket(zmq.DEALER)
        oversized.linger = 0
        oversized.connect(f"tcp://{endpoints[0]}")
        oversized.send(bytes(wire.MAX_PART * 3))
        header = Header(Kind.STATUS, worker=0, incarnation=link.incarnation, epoch=epoch)
        stranger.send_multipart(parts(header, [])[0])
        # The answer to the last question shows that everything before it has been dealt with.
        while wire.unpack_header(stranger.recv_multipart()[0]).kind != Kind.DONE:
            pass
        assert client.status()[0]["refused"] > 0
        assert processes[0].process.is_alive()
        context.destroy()
        client.stop_servers()
    text = log.read_text()
    assert "Rejected a message" in text
    assert text.count("Rejected") < 40
    assert "Traceback" not in text


def test_another_version_is_told_so():
    context = zmq.Context()
    router = context.socket(zmq.ROUTER)
    port = router.bind_to_random_port("tcp://127.0.0.1")
    client = Client([f"127.0.0.1:{port}"])
    route, header, *_ = router.recv_multipart()
    router.send_multipart([route, header[:4] + b"\x07\x00" + header[6:], b"", b""])
    with pytest.raises(RefusedError, match="protocol version 7"):
        client.welcomes()
    client.close()
    context.destroy()


def test_only_holders_of_the_keys_are_let_in():
    keys = make_keys()
    with servers(keys=keys) as (endpoints, _):
        for wrong in (None, make_keys()):
            stranger = Client(endpoints, settings=ClientSettings(keys=wrong, server_wait=1.0))
            with pytest.raises(PeerLostError, match="could not be reached"):
                stranger.welcomes()
            stranger.close()
        client = Client(endpoints, settings=ClientSettings(keys=keys.for_workers()))
        client.create(SPARSE)
        client.push_sparse("rows", torch.arange(100_000), torch.ones(100_000, 4))
        assert torch.all(client.pull_sparse("rows", torch.arange(100_000)) == -0.5)
        client.finish()


def test_a_server_without_keys_has_to_be_asked_for():
    assert is_loopback("127.0.0.1:80")
    assert is_loopback("[::1]:80")
    assert not is_loopback("0.0.0.0:80")
    assert not is_loopback("host.example:80")
    for address in ("0.0.0.0:0", "127.0.0.1:0"):
        with pytest.raises(ValueError, match="needs keys"):
            Server(address, ServerSettings())
    with pytest.raises(ValueError, match="a worker's"):
        Server("127.0.0.1:0", ServerSettings(keys=make_keys().for_workers()))
    assert "secret" not in repr(make_keys())


def test_a_peer_without_keys_makes_a_server_neither_write_nor_hold_memory(tmp_path):
    with servers(keys=make_keys(), workers=1) as (endpoints, processes):
        host, port = endpoints[0].split(":")
        context = zmq.Context()
        stranger = context.socket(zmq.DEALER)
        stranger.linger = 0
        stranger.connect(f"tcp://{endpoints[0]}")
        hello = wire.json_body({"workers": 1})
        for header, body in (
            (Header(Kind.HELLO), hello),
            (Header(Kind.SAVE), wire.json_body({"path": str(tmp_path / "x"), "token": "t"})),
        ):
            stranger.send_multipart(parts(header, body)[0])
        wait_until(lambda: port_answers(host, int(port)), "the server")
        pid = processes[0].process.pid
        before = resident(pid)
        # Greetings of ZeroMQ, then frames that are announced as large and never end.
        raw = [socket.create_connection((host, int(port))) for _ in range(40)]
        greeting = b"\xff" + bytes(8) + b"\x7f\x03\x00CURVE" + bytes(15) + bytes(33)
        for each in raw:
            with contextlib.suppress(OSError):
                each.sendall(greeting[:64] + b"\x06" + (1 << 40).to_bytes(8, "big"))
                each.sendall(bytes(4 << 20))
        assert resident(pid) - before < 64 << 20
        assert not stranger.poll(300)
        assert not (tmp_path / "x").exists()
        for each in raw:
            each.close()
        context.destroy()


def port_answers(host, port):
    try:
        socket.create_connection((host, port), 1).close()
    except OSError:
        return False
    return True


def resident(pid):
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096


def test_a_taken_address_is_named():
    with servers() as (endpoints, _), closing(Client(endpoints)) as client:
        client.welcomes()
        with pytest.raises(OSError, match=f"cannot listen at {endpoints[0]}"):
            Server(endpoints[0], ServerSettings(allow_insecure=True))


def test_an_older_process_of_a_worker_must_not_go_on():
    with servers() as (endpoints, _):
        old = Client(endpoints, settings=ClientSettings(incarnation=1))
        old.create(SPARSE)
        new = Client(endpoints, settings=ClientSettings(incarnation=2))
        new.create(SPARSE)
        with pytest.raises(RefusedError, match="started again"):
            old.push_sparse("rows", torch.tensor([1]), torch.ones(1, 4))
        new.push_sparse("rows", torch.tensor([1]), torch.ones(1, 4))
        new.finish()
        old.close()


def test_unreachable_servers_are_named():
    (endpoint,) = free_endpoints(1)
    client = Client([endpoint], settings=ClientSettings(server_wait=0.5))
    with pytest.raises(PeerLostError, match=f"server 0 at {endpoint} could not be reached"):
        client.create(SPARSE)
    client.close()
