"""Tables with more rows than memory for them: the same bits as with all rows in memory."""

import os

import pytest
import torch

from fleetx.ps.server.handover import hand_over, take_over
from fleetx.ps.server.state import ServerState
from fleetx.ps.tables.row_memory import RowMemory
from fleetx.ps.tables.row_rules import EntrySpec, EvictionSpec
from fleetx.ps.tables.sparse_table import SparseTable
from fleetx.ps.tables.table_spec import InitializerSpec, OptimizerSpec, SparseTableSpec
from fleetx.runtime.layout_folder import mark_whole

# Each test runs with the compiled modules and with their fallbacks.
pytestmark = pytest.mark.usefixtures("implementation")

DIM = 8
LIMIT = 8192
IDS = torch.arange(3000) * 7


def spec(kind="adagrad", name="rows", **more):
    normal = InitializerSpec(kind="normal")
    return SparseTableSpec(
        name=name, dim=DIM, initializer=normal, optimizer=OptimizerSpec(kind=kind), **more
    )


def train(tables, steps=20, seed=0):
    """Pull and push the same batches, most of them of some favourites; compare what is pulled."""
    dice = torch.Generator().manual_seed(seed)
    for step in range(steps):
        favourites = torch.randint(0, 200, (300,), generator=dice)
        others = torch.randint(0, len(IDS), (100,), generator=dice)
        ids = IDS[torch.cat([favourites, others]).unique()]
        grads = torch.randn(len(ids), DIM, generator=dice)
        pulled = [table.pull(ids) for table in tables]
        assert torch.equal(*pulled), step
        for table in tables:
            table.clock = step
            table.push(ids, grads)


def assert_same_state(one, two):
    states = one.state_dict(), two.state_dict()
    assert states[0].keys() == states[1].keys()
    for name, value in states[0].items():
        assert torch.equal(value, states[1][name]), name


@pytest.mark.parametrize(
    ("kind", "more"),
    [
        ("sgd", {}),
        ("adagrad", {}),
        ("adam", {"entry": EntrySpec(kind="count", value=2)}),
        ("ftrl", {"eviction": EvictionSpec(max_unseen=5, max_bytes=150_000)}),
        ("adagrad", {"eviction": EvictionSpec(min_score=0.5, score_decay=0.8, every=4)}),
        ("momentum", {}),
    ],
)
def test_the_same_bits_as_in_memory(tmp_path, kind, more):
    plain = SparseTable(spec(kind, **more))
    limited = SparseTable(spec(kind, **more), RowMemory(LIMIT, tmp_path))
    train([plain, limited])
    assert len(plain) * DIM * 4 > 2 * LIMIT
    assert plain.evict() == limited.evict()
    train([plain, limited], seed=1)
    assert_same_state(plain, limited)
    pieces = [list(table.rows())[0] for table in (plain, limited)]
    assert torch.equal(pieces[0][0], pieces[1][0])
    assert torch.equal(pieces[0][1]["Param"], pieces[1][1]["Param"])
    assert not os.listdir(tmp_path), "the files have no names"


def test_a_state_goes_from_one_to_the_other(tmp_path):
    """It is what checkpoints, snapshots and their restoration consist of."""
    memory = RowMemory(LIMIT, tmp_path)
    plain, limited = SparseTable(spec()), SparseTable(spec(), memory)
    train([plain, limited])
    other = SparseTable(spec())
    other.load_state_dict(limited.state_dict())
    limited.load_state_dict(plain.state_dict())
    assert_same_state(other, limited)
    train([other, limited], seed=1)
    # The memory of the rows before has been returned: all is used by those now.
    state = limited.state_dict()
    for _ in range(20):
        limited.load_state_dict(state)
    assert memory.left <= 0
    del limited
    assert memory.left == LIMIT


def test_tables_share_the_memory(tmp_path):
    memory = RowMemory(LIMIT, tmp_path)
    tables = [SparseTable(spec(name=name), memory) for name in ("a", "b/c")]
    plain = [SparseTable(spec(name=name)) for name in ("a", "b/c")]
    for pair in zip(plain, tables, strict=True):
        train(pair)
        assert_same_state(*pair)
    assert memory.left <= 0


def test_tables_move_to_other_servers(tmp_path):
    memory = RowMemory(LIMIT, tmp_path)
    before = ServerState(1, [spec()], memory=memory)
    plain = SparseTable(spec())
    train([plain, before.tables[0]])
    hand_over(before, tmp_path / "moved", 0)
    mark_whole(tmp_path / "moved", 1)
    found = torch.empty(len(IDS), DIM)
    for server in range(2):
        after = ServerState(1, servers=2, memory=RowMemory(LIMIT, tmp_path))
        after.restore(*take_over(tmp_path / "moved", server, 2))
        (table,) = after.tables
        mine = torch.isin(IDS, table.state_dict()["ids"])
        found[mine] = table.pull(IDS[mine])
    known = torch.isin(IDS, plain.state_dict()["ids"])
    assert torch.equal(found[known], plain.pull(IDS[known]))


def test_a_limit_must_have_room():
    with pytest.raises(ValueError, match="in 0 bytes"):
        RowMemory(0, ".")
