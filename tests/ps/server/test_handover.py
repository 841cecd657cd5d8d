"""Moves of tables, by peers that lie and with files that are damaged: refused, and nothing lost."""

import copy
from types import SimpleNamespace

import pytest
import torch
from processes import servers
from training import dense_specs, sparse_spec

from fleetx.checkpoint import FormatError, manifest
from fleetx.ps.client.client import Client, RefusedError
from fleetx.ps.server.handover import hand_over, take_over
from fleetx.ps.server.moving import Move
from fleetx.ps.server.saving import Saver, load
from fleetx.ps.server.state import ServerState
from fleetx.ps.wire import messages as wire
from fleetx.ps.wire.assembly import Message
from fleetx.ps.wire.messages import NO_STEP, Header, Kind, WireError
from fleetx.runtime.layout_folder import mark_whole


def two_states():
    made = []
    for number, spec in enumerate(dense_specs(2)):
        state = ServerState(2, [spec, sparse_spec()], servers=2)
        for block in spec.blocks:
            state.tables[0].assign(block.name, torch.full(block.shape, 1.0 + number).double())
        state.has_values.add(0)
        made.append(state)
    return made


@pytest.fixture
def handed(tmp_path):
    for number, state in enumerate(two_states()):
        hand_over(state, tmp_path, number)
    mark_whole(tmp_path, 2)
    return tmp_path


def test_all_blocks_arrive(handed):
    found = {}
    for server in range(3):
        after = ServerState(2, servers=3)
        after.restore(*take_over(handed, server, 3))
        found |= after.tables[0].state_dict()
    expected = {k: v for state in two_states() for k, v in state.tables[0].state_dict().items()}
    assert found.keys() == expected.keys()
    assert all(torch.equal(value, expected[name]) for name, value in found.items())


def change(folder, server, edit):
    tensors, meta = manifest.load_state(folder / f"server-{server}")
    meta, tensors = copy.deepcopy(meta), dict(tensors)
    edit(tensors, meta)
    manifest.save_state(folder / f"server-{server}", tensors, meta)


@pytest.mark.parametrize(
    "edit",
    [
        lambda tensors, meta: meta.update(version=7),
        lambda tensors, meta: meta.update(version="0"),
        lambda tensors, meta: meta.update(version=-1),
        lambda tensors, meta: meta.update(workers=3),
        lambda tensors, meta: meta.pop("workers"),
        lambda tensors, meta: meta.update(tables=[3]),
        lambda tensors, meta: meta["tables"].pop(),
        lambda tensors, meta: meta["tables"].append(meta["tables"][0]),
        lambda tensors, meta: meta["tables"][0].update(name="other"),
        lambda tensors, meta: meta.update(finished=[2]),
        lambda tensors, meta: meta.update(has_values=[-1]),
        lambda tensors, meta: meta.update(barriers_passed=None),
        lambda tensors, meta: meta.update(notes=[]),
        lambda tensors, meta: meta.update(arrived={"x": []}),
        lambda tensors, meta: tensors.update({"changes.9.0": torch.tensor([1])}),
        lambda tensors, meta: tensors.update({"changes.1.x": torch.tensor([1])}),
    ],
)
def test_states_that_cannot_be_are_refused(handed, edit):
    """Their checksums are valid: somebody has written them."""
    change(handed, 1, edit)
    with pytest.raises(FormatError, match="is no state to take over"):
        take_over(handed, 0, 3)


def test_blocks_of_two_servers_are_refused(handed):
    tensors, meta = manifest.load_state(handed / "server-0")
    manifest.save_state(handed / "server-1", tensors, meta)
    with pytest.raises(FormatError, match="whose blocks two servers have"):
        take_over(handed, 0, 3)


def test_a_missing_or_damaged_part_is_an_error(handed):
    """What one server had would otherwise be lost in silence."""
    file = next((handed / "server-1").glob("*.safetensors"))
    whole = file.read_bytes()
    file.write_bytes(whole[:-9] + bytes([whole[-9] ^ 1]) + whole[-8:])
    with pytest.raises(FormatError):
        take_over(handed, 0, 3)
    file.write_bytes(whole)
    mark_whole(handed, 3)
    with pytest.raises((OSError, FormatError), match="server-2"):
        take_over(handed, 0, 3)
    (handed / "whole").write_bytes(b"")
    with pytest.raises(ValueError, match="whole is damaged"):
        take_over(handed, 0, 3)


def message(value, **fields):
    return Message(Header(Kind.MOVE, **fields), wire.json_body(value))


def test_announcements_are_checked():
    state = ServerState(2)
    state.sync.version = 10
    for value in ({}, *({"generation": g} for g in (0, -1, True, 1.0, "1", None, [1], 10**30))):
        with pytest.raises(WireError, match="tables cannot move to layout"):
            state.check(message(value, step=12))
    with pytest.raises(WireError, match="worker 0 announces"):
        state.check(message({"generation": 1}, step=12, worker=1))
    for step in (0, 9, 14, 1 << 40):
        with pytest.raises(WireError, match="too far from 10"):
            state.check(message({"generation": 1}, step=step))
    state.check(message({"generation": 1}, step=12))
    state.apply(message({"generation": 1}, step=12))
    with pytest.raises(WireError, match="to layout 1 already"):
        state.check(message({"generation": 2}, step=12))
    assert state.move == Move(1, 12)
    assert Move.from_json(state.move.to_json()) == state.move


def test_tables_are_saved_in_whole_paths_only(tmp_path, monkeypatch):
    """A name alone would be a folder wherever the server was started."""
    monkeypatch.chdir(tmp_path)
    request = {"path": "somewhere", "token": "t"}
    save = Message(Header(Kind.SAVE), wire.json_body(request))
    with pytest.raises(WireError, match="not the whole path"):
        Saver(0, 1).save(two_states()[0], save, lambda error: None)
    with pytest.raises(WireError, match="not the whole path"):
        load(two_states()[0], request, server=0, servers=1)
    assert not list(tmp_path.iterdir())


def test_a_save_that_fails_in_an_unexpected_way_is_answered_too(tmp_path):
    """A table with numbers that no file can hold: not one of the errors that a save expects."""
    state = two_states()[0]
    table = state.tables[0]
    state.tables = [SimpleNamespace(spec=table.spec, state_dict=lambda: {"x": torch.zeros(1) * 1j})]
    save = Message(Header(Kind.SAVE), wire.json_body({"path": str(tmp_path), "token": "t"}))
    saver, told = Saver(0, 1), []
    saver.save(state, save, told.append)
    saver.close()
    saver.tell_finished()
    (error,) = told
    assert isinstance(error, TypeError)
    assert "complex64, which cannot be saved" in str(error)


@pytest.mark.parametrize(
    "value",
    [
        *({}, [], 3, {"generation": 1}, {"generation": 1, "step": 2, "ready": 3}),
        *(
            {"generation": 1, "step": 2, "ready": ["0"]},
            {"generation": "1", "step": 2, "ready": []},
        ),
        {"generation": 1, "step": 2, "ready": [], "more": 1},
    ],
)
def test_what_a_server_says_about_a_move_is_checked(value):
    with pytest.raises(ValueError, match="is no move of tables"):
        Move.from_json(value)


@pytest.mark.slow  # starts a server
def test_states_are_handed_over_in_the_folder_of_the_move_only(tmp_path):
    with servers(1) as (endpoints, processes):
        client = Client(endpoints)
        client.create(sparse_spec())
        client.push_sparse("rows", torch.arange(5), torch.ones(5, 4, dtype=torch.float64))
        before = client.pull_sparse("rows", torch.arange(5))
        client.tell_move(1, NO_STEP)
        with pytest.raises(RefusedError, match="to layout 1 already"):
            client.tell_move(2, NO_STEP)
        for wrong in ("elsewhere", "handover-2", "none/handover-1", "x" * 5000 + "/handover-1"):
            with pytest.raises(RefusedError, match="is not the folder of the move"):
                client.hand_over(tmp_path / wrong)
        assert not list(tmp_path.iterdir())
        client.hand_over(tmp_path / "handover-1")
        assert [path.name for path in (tmp_path / "handover-1").iterdir()] == ["server-0"]
        assert torch.equal(client.pull_sparse("rows", torch.arange(5)), before)
        client.finish()
        assert processes[0].end() == 0
