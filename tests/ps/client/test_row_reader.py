"""A reader looks up rows on live servers, and nothing else; servers fail, restart and move."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest
import torch
import zmq
from processes import Process, servers

from fleetx.cli import main
from fleetx.ps.client import row_reader
from fleetx.ps.client.client import Client, ClientSettings, RefusedError
from fleetx.ps.client.row_reader import RowReader, ServerPlaces, ServersUnavailableError
from fleetx.ps.server.snapshots import Durability
from fleetx.ps.tables.table_spec import (
    BlockSpec,
    DenseTableSpec,
    InitializerSpec,
    OptimizerSpec,
    SparseTableSpec,
)
from fleetx.ps.wire import assembly, security
from fleetx.ps.wire import messages as wire
from fleetx.ps.wire.messages import Header, Kind
from fleetx.ps.wire.security import JobKeys, ReaderKeys, make_keys
from fleetx.runtime.layout_folder import LayoutFolder, ServerLayout
from fleetx.runtime.server_support import read_keys, write_keys
from waiting import LIMIT, wait_until

pytestmark = pytest.mark.slow  # starts servers

DIM = 4
SPEC = SparseTableSpec(
    name="user",
    dim=DIM,
    initializer=InitializerSpec(kind="uniform", settings={"low": 1.0, "high": 2.0}),
    optimizer=OptimizerSpec(kind="sgd", rate=1.0),
)
IDS = torch.arange(100) * 7919
KEYS = make_keys()


@contextmanager
def a_worker(endpoints: list[str], keys: JobKeys = KEYS) -> Iterator[Client]:
    client = Client(endpoints, settings=ClientSettings(keys=keys.for_workers()))
    try:
        yield client
    finally:
        client.close()


@contextmanager
def a_reader(
    *endpoints: str, keys: ReaderKeys | None = None, folder: LayoutFolder | None = None
) -> Iterator[RowReader]:
    places = ServerPlaces(endpoints, folder)
    with closing(RowReader(places, keys or KEYS.for_readers(), seconds=LIMIT)) as reader:
        yield reader


def filled(client: Client) -> torch.Tensor:
    """Give the ids rows; return them."""
    client.create(SPEC)
    client.push_sparse("user", IDS, torch.randn(len(IDS), DIM))
    return client.pull_sparse("user", IDS)


def test_rows_are_those_of_the_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    with servers(2, keys=KEYS) as (endpoints, _), a_worker(endpoints) as client:
        rows = filled(client)
        with a_reader(*endpoints) as reader:
            assert torch.equal(reader.read("user", IDS, DIM), rows)
            again = torch.tensor([3, 3, 0])
            assert torch.equal(reader.read("user", IDS[again], DIM), rows[again])
            assert reader.read("user", IDS[:0], DIM).shape == (0, DIM)
            # Ids without a row read as the mean of the initializer, and get none by that.
            unseen = reader.read("user", torch.tensor([1, 2]), DIM)
            assert torch.equal(unseen, torch.full((2, DIM), 1.5))
            assert torch.equal(reader.read("user", torch.tensor([1]), DIM), unseen[:1])
            monkeypatch.setattr(row_reader, "_MOST_IDS", 7)  # in many requests
            assert torch.equal(reader.read("user", IDS, DIM), rows)
            client.push_sparse("user", IDS, torch.ones(len(IDS), DIM))
            assert torch.allclose(reader.read("user", IDS, DIM), rows - 1)


def test_what_cannot_be_read_is_refused() -> None:
    dense = DenseTableSpec(
        name="dense",
        blocks=(BlockSpec(name="w", parameter="w", shape=(3,)),),
        optimizer=OptimizerSpec(kind="sgd", rate=1.0),
    )
    with servers(2, keys=KEYS) as (endpoints, _), a_worker(endpoints) as client:
        filled(client)
        client.create([dense, dataclasses.replace(dense, blocks=())])
        with a_reader(*endpoints) as reader:
            with pytest.raises(RefusedError, match="there is no table 'film'; this server has"):
                reader.read("film", IDS, DIM)
            with pytest.raises(RefusedError, match="'dense' has no rows by id"):
                reader.read("dense", IDS, DIM)
            with pytest.raises(RefusedError, match="rows of 4 numbers, but the model expects 5"):
                reader.read("user", IDS, 5)
        # With a part of the servers, or in another order, ids would be looked for elsewhere.
        for wrong in (endpoints[:1], endpoints[::-1]):
            with (
                a_reader(*wrong) as reader,
                pytest.raises(RefusedError, match="name all servers of the job, in their order"),
            ):
                reader.read("user", IDS, DIM)


def test_the_key_of_a_reader_lets_it_do_nothing_else(tmp_path: Path) -> None:
    reading = dataclasses.replace(
        KEYS, worker_public=KEYS.reader_public, worker_secret=KEYS.reader_secret, server_secret=""
    )
    with servers(1, keys=KEYS) as (endpoints, _), a_worker(endpoints) as client:
        rows = filled(client)
        posing = Client(endpoints, settings=ClientSettings(keys=reading, shared_memory=False))
        with closing(posing), pytest.raises(RefusedError, match="key of a reader is for looking"):
            posing.create(SPEC)
        with zmq.Context() as context, context.socket(zmq.DEALER) as socket:
            socket.linger = 0
            security.secure_client(socket, KEYS.for_readers())
            socket.connect(f"tcp://{endpoints[0]}")
            ids = [(0, IDS), (1, torch.ones(len(IDS), DIM))]
            bodies = {
                Kind.SAVE: wire.json_body({"path": str(tmp_path), "token": "a" * 16}),
                Kind.LOAD: wire.json_body({"path": str(tmp_path)}),
                Kind.PUSH: ids,
                Kind.ADD: ids,
            }
            for number, kind in enumerate(set(Kind) - {Kind.READ}, 1):
                for sequence in (0, 1, 2):
                    header = Header(kind, request=number, sequence=sequence, step=1)
                    header.epoch = client.status()[0]["epoch"]
                    for frames in assembly.parts(header, bodies.get(kind, [])):
                        socket.send_multipart(frames)
                    assert socket.poll(LIMIT * 1000)
                    reply = wire.unpack_header(memoryview(socket.recv_multipart()[0]))
                    assert (reply.kind, reply.request) == (Kind.ERROR, number), kind
            malformed = ([], ids, [(0, IDS), (1, IDS), (2, IDS)], [*ids, (2, IDS)])
            for tensors in malformed:
                for frames in assembly.parts(Header(Kind.READ), tensors):
                    socket.send_multipart(frames)
                assert socket.poll(LIMIT * 1000)
                reply = wire.unpack_header(memoryview(socket.recv_multipart()[0]))
                assert reply.kind == Kind.ERROR
        assert torch.equal(client.pull_sparse("user", IDS), rows)
        assert not list(tmp_path.iterdir())


def test_strangers_and_readers_of_other_jobs_are_not_let_in() -> None:
    with servers(1, keys=KEYS) as (endpoints, _), a_worker(endpoints) as client:
        filled(client)
        places = ServerPlaces(endpoints)
        for keys in (None, make_keys().for_readers()):
            with (
                closing(RowReader(places, keys, seconds=0.3)) as reader,
                pytest.raises(ServersUnavailableError, match="does not accept the key"),
            ):
                reader.read("user", IDS, DIM)


def read_in_time(reader: RowReader) -> torch.Tensor:
    """Read rows; a connection, or a busy machine, may need longer than the limit of a look-up."""

    def read() -> list[torch.Tensor]:
        with suppress(ServersUnavailableError):
            return [reader.read("user", IDS, DIM)]
        return []

    return wait_until(read, "the rows")[0]


def test_a_server_that_is_down_comes_back(tmp_path: Path) -> None:
    kept = Durability(folder=tmp_path / "state")
    with (
        servers(1, keys=KEYS, durability=kept) as (endpoints, running),
        a_worker(endpoints) as client,
        closing(RowReader(ServerPlaces(endpoints), KEYS.for_readers(), seconds=1.0)) as reader,
    ):
        rows = filled(client)
        assert torch.equal(read_in_time(reader), rows)
        running[0].kill()
        for _ in range(2):
            with pytest.raises(ServersUnavailableError, match="has not replied within 1 s"):
                reader.read("user", IDS, DIM)
        running[0].start()
        client.status()  # it is back
        assert torch.equal(read_in_time(reader), rows)


def test_rows_that_have_moved_are_found(tmp_path: Path) -> None:
    folder = LayoutFolder(tmp_path)
    running: list[Process]
    with servers(1, keys=KEYS) as (old, running), servers(2, keys=KEYS) as (new, _):
        folder.write(ServerLayout(0, tuple(old), 1))
        with a_worker(old) as before, a_worker(new) as after, a_reader(folder=folder) as reader:
            rows = filled(before)
            assert torch.equal(reader.read("user", IDS, DIM), rows)
            moved = filled(after)
            folder.write(ServerLayout(1, tuple(new), 1))
            running[0].kill()
            assert torch.equal(reader.read("user", IDS, DIM), moved)


def test_keys_of_readers_in_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job, readers = tmp_path / "job.keys", tmp_path / "readers.keys"
    assert main(["ps", "keys", str(job)]) == 0
    assert main(["ps", "reader_keys", str(job), str(readers)]) == 0
    assert readers.stat().st_mode & 0o077 == 0
    found = read_keys(readers, "--reader_keys")
    assert ReaderKeys.from_dict(found) == JobKeys.from_dict(read_keys(job, "KEYS")).for_readers()
    assert found["reader_secret"] not in repr(ReaderKeys.from_dict(found))
    with pytest.raises(ValueError, match="make them with `fleetx ps reader_keys`"):
        ReaderKeys.from_dict(read_keys(job, "--reader_keys"))
    # Files from before there were readers still start jobs, which nobody can only read.
    old = {name: key for name, key in read_keys(job, "KEYS").items() if "reader" not in name}
    write_keys(tmp_path / "old.keys", old)
    with pytest.raises(ValueError, match="have none for readers"):
        JobKeys.from_dict(read_keys(tmp_path / "old.keys", "KEYS")).for_readers()
