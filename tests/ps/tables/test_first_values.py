"""Rows that tables start with: those of the folder, whatever the rules of the table."""

import pytest
import torch

from fleetx.checkpoint.paddle_tensor import write_tensor
from fleetx.ps.server.saving import load
from fleetx.ps.server.state import ServerState
from fleetx.ps.tables.first_values import FirstValues
from fleetx.ps.tables.row_rules import EntrySpec, EvictionSpec
from fleetx.ps.tables.sparse_table import SparseTable
from fleetx.ps.tables.table_files import save_table
from fleetx.ps.tables.table_spec import InitializerSpec, SparseTableSpec
from fleetx.ps.tables.table_text import write_text

ROWS = 20
RULES = {
    "none": {},
    "random first values": {"initializer": InitializerSpec(kind="uniform")},
    "seen twice": {"entry": EntrySpec(kind="count", value=2)},
    "seen three times": {"entry": EntrySpec(kind="count", value=3)},
    "at random": {"entry": EntrySpec(kind="probability", value=0.1)},
    "scores": {"eviction": EvictionSpec(min_score=1.0, score_decay=0.9, every=1)},
    "times": {"eviction": EvictionSpec(max_unseen=1, every=2)},
}


@pytest.fixture
def rows():
    return torch.randn(ROWS, 4) * 1e-3  # a sum with larger numbers would round them


def write_file(folder, rows):
    with (folder / "emb").open("wb") as stream:
        write_tensor(stream, rows.numpy())


def started(folder, rules, server=0, servers=1):
    spec = SparseTableSpec(name="emb", dim=4, **RULES[rules])
    values = FirstValues(folder, server=server, servers=servers)
    return ServerState(1, [spec], first_values=values, servers=servers).tables[0]


@pytest.mark.parametrize("rules", RULES)
@pytest.mark.parametrize("kind", ["text", "file"])
def test_rows_are_those_of_the_folder(tmp_path, rows, kind, rules):
    if kind == "text":
        write_text(tmp_path, "emb", [(torch.arange(ROWS), {"Param": rows})], columns={"Param": 4})
    else:
        write_file(tmp_path, rows)
    found = started(tmp_path, rules).state_dict()
    order = found["ids"].argsort()
    assert found["ids"][order].tolist() == list(range(ROWS))
    assert torch.equal(found["Param"][order], rows)
    assert int(found["clock"]) == int(found.get("pushes", 0)) == 0


def test_every_server_has_its_share(tmp_path, rows):
    write_file(tmp_path, rows)
    parts = [started(tmp_path, "none", server, 3).state_dict() for server in range(3)]
    assert all(len(part["ids"]) for part in parts)
    assert sorted(torch.cat([part["ids"] for part in parts]).tolist()) == list(range(ROWS))


def test_ids_that_wait_go_on_waiting(tmp_path):
    folder = tmp_path / "emb_txt"
    folder.mkdir()
    # Counts, days without a push, and whether the id has a row.
    (folder / "emb.block0.txt").write_text("5\t7\t0\t1\t1,2,3,4,\n6\t2\t3\t0\t0,0,0,0,\n")
    meta = "param=emb\nshard_id=0\nrow_names=Param\nrow_dims=4\ncount=2\n"
    (folder / "emb.block0.meta").write_text(meta)
    found = started(tmp_path, "seen three times").state_dict()
    assert found["ids"].tolist() == [5]
    assert (found["waiting_ids"].tolist(), found["waiting_counts"].tolist()) == ([6], [2])


def test_a_load_that_fits_one_table_of_two_changes_neither(tmp_path):
    for name in ("a", "b"):
        table = SparseTable(SparseTableSpec(name=name, dim=2))
        table.push(torch.arange(4), torch.ones(4, 2))
        save_table(tmp_path, table)
    specs = [SparseTableSpec(name="a", dim=2), SparseTableSpec(name="b", dim=3)]
    state = ServerState(1, specs)
    state.tables[0].push(torch.arange(100, 110), torch.ones(10, 2))
    with pytest.raises(ValueError, match="table 'b' needs 'Param' of shape"):
        load(state, {"path": str(tmp_path)}, server=0, servers=1)
    assert sorted(state.tables[0].state_dict()["ids"].tolist()) == list(range(100, 110))


@pytest.mark.parametrize("seen", [-1, 2**32])
def test_rows_of_impossible_times_are_refused(seen):
    table = SparseTable(SparseTableSpec(name="a", dim=2, **RULES["times"]))
    table.push(torch.arange(4), torch.ones(4, 2))
    state = table.state_dict()
    state["seen"][2] = seen
    with pytest.raises(ValueError, match="table 'a' has rows that were pushed before time 0"):
        table.load_state_dict(state)
    assert len(table) == 4


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ids", torch.arange(4).int()),
        ("waiting_ids", torch.tensor(1)),
        ("waiting_ids", torch.zeros(1, 1, dtype=torch.int64)),
    ],
)
def test_states_of_other_shapes_and_types_are_refused(name, value):
    table = SparseTable(SparseTableSpec(name="a", dim=2))
    table.push(torch.arange(4), torch.ones(4, 2))
    state = {**table.state_dict(), name: value}
    if name == "waiting_ids":
        state["waiting_counts"] = value
    with pytest.raises(ValueError, match="the state of table 'a'"):
        table.check_state_dict(state)
