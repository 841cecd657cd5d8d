"""The log of a server: torn tails are cut off, damage anywhere is an error that names the place."""

import random
from dataclasses import replace

import pytest
import torch
from training import IDS, sparse_spec

from fleetx import cli
from fleetx.checkpoint import FormatError
from fleetx.ps.server.journal import FILE_HEADER, Journal, segment_path
from fleetx.ps.server.journal_reading import DamagedLogError, LogReader
from fleetx.ps.server.snapshots import Durability, Storage
from fleetx.ps.server.state import ServerState
from fleetx.ps.tables.row_rules import EvictionSpec
from fleetx.ps.wire import messages as wire
from fleetx.ps.wire.assembly import Message
from fleetx.ps.wire.messages import Header, Kind


def records(count):
    return [
        Message(
            Header(Kind.PUSH, sequence=number, rate=0.5, norm=1.0),
            [(0, torch.arange(number)), (1, torch.randn(number, 3))],
        )
        for number in range(1, count + 1)
    ]


def write(path, written, policy="none", **settings):
    """Write a segment; return the sizes after each record, and the chain value after it."""
    journal = Journal(path, policy, 0.01, **settings)
    ends = [journal.size]
    for record in written:
        journal.append(record.header, record.tensors)
        ends.append(journal.size)
    journal.close()
    return ends, journal.chain


def same_messages(found, expected):
    assert [m.header for m in found] == [m.header for m in expected]
    for one, two in zip(found, expected, strict=True):
        for (_, a), (_, b) in zip(one.tensors, two.tensors, strict=True):
            assert torch.equal(a, b)


@pytest.mark.parametrize("policy", ["none", "interval", "always"])
def test_a_log_gives_back_what_was_written(tmp_path, policy):
    written = records(20)
    _, chain = write(segment_path(tmp_path, 0), written[:12], policy)
    write(segment_path(tmp_path, 1), written[12:], policy, number=1, chain=chain)
    same_messages(list(LogReader(tmp_path, 0, 0)), written)


def test_a_torn_tail_is_cut_off(tmp_path):
    path = segment_path(tmp_path, 0)
    written = records(6)
    ends, _ = write(path, written)
    content = path.read_bytes()
    for cut in [*range(0, len(content), 37), *ends, len(content)]:
        path.write_bytes(content[:cut])
        whole = sum(end <= cut for end in ends[1:])
        same_messages(list(LogReader(tmp_path, 0, 0)), written[:whole])
        if cut < FILE_HEADER.size:
            assert not path.exists()
        else:
            assert path.stat().st_size == ends[whole]


def damage_in(folder, written):
    """Read a log; return its damage, None if it gives back what was written."""
    try:
        found = list(LogReader(folder, 0, 0))
    except DamagedLogError as error:
        return error
    same_messages(found, written)  # the flip was in the padding between tensors
    return None


def test_no_flipped_bit_loses_a_request_in_silence(tmp_path):
    path = segment_path(tmp_path, 0)
    written = records(6)
    ends, _ = write(path, written)
    content = path.read_bytes()
    generator = random.Random(3)
    found_damage = 0
    for _ in range(300):
        at = generator.randrange(len(content))
        damaged = bytearray(content)
        damaged[at] ^= 1 << generator.randrange(8)
        path.write_bytes(damaged)
        error = damage_in(tmp_path, written)
        if error is not None:
            found_damage += 1
            before = max((n for n, end in enumerate(ends) if end <= at), default=0)
            assert error.path == path
            assert error.offset == (ends[before] if at >= FILE_HEADER.size else 0)
            assert error.before == before
            assert error.behind == len(written) - before - (at >= FILE_HEADER.size)
            assert f"{path}: is damaged at byte {error.offset}" in str(error)
            assert f"fleetx ps repair {tmp_path}" in str(error)
        assert path.stat().st_size == len(content)
    assert found_damage > 150


def test_flips_and_moves_in_a_large_record_are_found(tmp_path):
    path = segment_path(tmp_path, 0)
    header = Header(Kind.PUSH, sequence=1, rate=0.5, norm=1.0)
    large = Message(header, [(0, torch.randn(100_003))])
    ends, _ = write(path, [large])
    content = path.read_bytes()
    start = ends[1] - 400_064  # where the tensor begins
    generator = random.Random(9)

    def flipped(*places):
        damaged = bytearray(content)
        for at, bit in places:
            damaged[at] ^= 1 << bit
        return damaged

    def swapped(one, two, size):
        damaged = bytearray(content)
        damaged[one : one + size], damaged[two : two + size] = (
            content[two : two + size],
            content[one : one + size],
        )
        return damaged

    attacks = [flipped((generator.randrange(start, ends[1] - 60), generator.randrange(8)))]
    for _ in range(40):  # the same bit of two words, in a row and in a column of the sums
        at, bit = generator.randrange(start, start + 8000), generator.randrange(8)
        attacks.append(flipped((at, bit), (at + 8 * generator.randrange(1, 900), bit)))
        attacks.append(flipped((at, bit), (at + 8192 * generator.randrange(1, 40), bit)))
    attacks += [swapped(start, start + 8192, size) for size in (8, 8192)]
    attacks += [swapped(start, start + 800, 8)]
    for damaged in attacks:
        assert damaged != content
        path.write_bytes(damaged)
        with pytest.raises(DamagedLogError, match="checksum"):
            list(LogReader(tmp_path, 0, 0))
    path.write_bytes(content)
    same_messages(list(LogReader(tmp_path, 0, 0)), [large])


def test_records_and_files_out_of_place_are_damage(tmp_path):
    path = segment_path(tmp_path, 0)
    written = records(5)
    ends, chain = write(path, written)
    content = path.read_bytes()
    pieces = [content[: ends[0]]] + [content[a:b] for a, b in zip(ends, ends[1:], strict=False)]
    for order in ([0, 2, 3, 4, 5], [0, 1, 3, 2, 4, 5], [0, 1, 2, 2, 3, 4, 5], [0, 1, 2, 4, 5]):
        path.write_bytes(b"".join(pieces[number] for number in order))
        with pytest.raises(DamagedLogError, match="does not continue the one before it"):
            list(LogReader(tmp_path, 0, 0))
    path.write_bytes(content)
    write(segment_path(tmp_path, 1), written, number=1, chain=chain)
    path.write_bytes(content[: ends[3]])  # whole records, but the file is not the last
    with pytest.raises(DamagedLogError, match="does not continue the log"):
        list(LogReader(tmp_path, 0, 0))
    path.write_bytes(content[:-1])
    with pytest.raises(DamagedLogError, match="the file ends here, and more follows"):
        list(LogReader(tmp_path, 0, 0))
    path.write_bytes(content)
    # A short file that begins like no log is another one in its place, not an unfinished header.
    segment_path(tmp_path, 1).write_bytes(b"2 1ad5be0d\n")
    with pytest.raises(DamagedLogError, match="the header of the file does not verify"):
        list(LogReader(tmp_path, 0, 0))
    segment_path(tmp_path, 1).write_bytes(content[:7])
    same_messages(list(LogReader(tmp_path, 0, 0)), written)
    write(segment_path(tmp_path, 1), written, number=1, chain=chain)
    path.unlink()
    with pytest.raises(FormatError, match="lacks parts of the log from 0"):
        list(LogReader(tmp_path, 0, 0))


def test_an_old_log_is_refused_by_a_sentence(tmp_path):
    segment_path(tmp_path, 0).write_bytes(b"FXJ1" + bytes(300))
    with pytest.raises(FormatError, match=r"written by FleetX 0\.1 or older"):
        list(LogReader(tmp_path, 0, 0))


# -- a server's folder ----------------------------------------------------------------------------
def push(number):
    rows = torch.full((IDS, 4), float(number), dtype=torch.float64)
    tensors = [(0, torch.arange(IDS)), (1, rows)]
    return Message(Header(Kind.PUSH, sequence=number + 1, rate=0.5), tensors)


def create():
    return Message(Header(Kind.CREATE, sequence=1), wire.json_body(sparse_spec().to_dict()))


def recovered(folder):
    storage, state = Storage(Durability(folder=folder)), ServerState(1)
    try:
        storage.recover(state)
    finally:
        storage.close()
    return state


def filled(folder, requests):
    """Log requests with a snapshot after the third, and return the rows after each."""
    storage, state, rows = Storage(Durability(folder=folder)), ServerState(1), []
    storage.recover(state)
    for number, message in enumerate(requests):
        storage.append(message)
        state.apply(message)
        rows.append(state.tables[0].pull(torch.arange(IDS)).clone())
        if number == 2:
            storage.snapshot(state, wait=True)
    storage.close()
    return rows


@pytest.mark.parametrize("pushes", [1, 5])  # the table is in the log, or in a snapshot
def test_a_log_with_an_eviction_that_would_be_refused_now_is_replayed(tmp_path, pushes):
    spec = replace(sparse_spec(), eviction=EvictionSpec(max_unseen=5))
    made = Message(Header(Kind.CREATE, sequence=1), wire.json_body(spec.to_dict()))
    with pytest.raises(wire.WireError, match="set every"):
        ServerState(1).check(made)
    rows = filled(tmp_path / "server0", [made, *(push(number) for number in range(1, pushes + 1))])
    (table,) = recovered(tmp_path / "server0").tables
    assert table.spec == spec
    assert torch.equal(table.pull(torch.arange(IDS)), rows[-1])


def test_repair_restores_what_is_before_the_damage_and_keeps_the_rest(tmp_path, capsys):
    folder = tmp_path / "server0"
    rows = filled(folder, [create(), *(push(number) for number in range(1, 9))])
    (path,) = folder.glob("journal-*.log")
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 16
    path.write_bytes(content)
    with pytest.raises(DamagedLogError, match="is damaged at byte") as caught:
        recovered(folder)
    assert path.read_bytes() == content  # an error changes nothing
    assert cli.main(["ps", "repair", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert f"is damaged at byte {caught.value.offset}" in said
    (aside,) = folder.glob("damaged-*")
    assert (aside / path.name).read_bytes() == content[caught.value.offset :]
    state = recovered(folder)
    last = 2 + caught.value.before
    assert state.applied == {0: last + 1}
    assert torch.equal(state.tables[0].pull(torch.arange(IDS)), rows[last])
    assert cli.main(["ps", "repair", str(folder)]) == 0
    assert "is intact" in capsys.readouterr().out


def test_repair_needs_the_folder_of_a_server_that_does_not_run(tmp_path, capsys):
    assert cli.main(["ps", "repair", str(tmp_path)]) == 1
    assert "is not the folder of a parameter server" in capsys.readouterr().err
    storage = Storage(Durability(folder=tmp_path / "server0"))
    assert cli.main(["ps", "repair", str(tmp_path)]) == 1
    assert "in use by another parameter server" in capsys.readouterr().err
    storage.close()


def test_a_flipped_epoch_never_goes_back(tmp_path):
    for _ in range(3):
        Storage(Durability(folder=tmp_path)).close()
    path = tmp_path / "epoch"
    content = path.read_bytes()
    for at in range(len(content)):
        path.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
        storage = Storage(Durability(folder=tmp_path))
        storage.close()
        assert storage.epoch > 3


def test_a_snapshot_with_a_flipped_byte_is_refused(tmp_path):
    filled(tmp_path, [create(), *(push(number) for number in range(1, 5))])
    generator = random.Random(5)
    (snapshot,) = tmp_path.glob("snapshot-*")
    for path in snapshot.iterdir():
        content = path.read_bytes()
        for _ in range(60):
            at = generator.randrange(len(content))
            bit = 1 << generator.randrange(8)
            path.write_bytes(content[:at] + bytes([content[at] ^ bit]) + content[at + 1 :])
            with pytest.raises((FormatError, FileNotFoundError)):
                recovered(tmp_path)
        path.write_bytes(content)
    recovered(tmp_path)
