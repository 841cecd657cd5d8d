"""Saved tables: on another number of servers, and damaged."""

import json
import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from fleetx.checkpoint import FormatError
from fleetx.checkpoint.sealed_json import seal, unseal
from fleetx.ps.tables.make_table import create_table
from fleetx.ps.tables.row_rules import EntrySpec, EvictionSpec
from fleetx.ps.tables.table_export import export_table
from fleetx.ps.tables.table_files import SavedTable, finish_save, load_table, save_part, save_table
from fleetx.ps.tables.table_spec import (
    BlockSpec,
    DenseTableSpec,
    InitializerSpec,
    OptimizerSpec,
    SparseTableSpec,
)
from fleetx.ps.wire.partition import slice_parameter, split_ids

IDS = torch.cat([torch.arange(-50, 50), torch.tensor([2**63 - 1, -(2**63)])])
SHAPES = {"w": (7, 3), "b": (4,)}


def sparse(kind="adam", **more):
    return SparseTableSpec(
        name="emb",
        dim=4,
        initializer=InitializerSpec(kind="normal"),
        optimizer=OptimizerSpec(kind=kind),
        **more,
    )


def push_all(tables, ids, seed=0):
    grads = torch.randn(len(ids), 4, generator=torch.Generator().manual_seed(seed))
    for table, part in zip(tables, split_ids(ids, len(tables)), strict=True):
        table.push(ids[part], grads[part])


def pull_all(tables, ids):
    out = torch.empty(len(ids), 4)
    for table, part in zip(tables, split_ids(ids, len(tables)), strict=True):
        out[part] = table.pull(ids[part])
    return out


def save_all(folder, tables, token="t1"):
    for server, table in enumerate(tables):
        save_part(
            folder,
            table.spec,
            table.state_dict(),
            server=server,
            servers=len(tables),
            token=token,
        )
    finish_save(folder, tables[0].spec.name, servers=len(tables), token=token)


@pytest.mark.parametrize(
    "spec",
    [
        sparse("adam"),
        sparse("sgd", entry=EntrySpec(kind="count", value=3)),
        sparse(
            "ftrl",
            eviction=EvictionSpec(max_unseen=5),
            entry=EntrySpec(kind="probability", value=0.5),
        ),
        SparseTableSpec(
            name="emb",
            dim=4,
            optimizer=OptimizerSpec(kind="adam", settings={"shared_steps": True}),
        ),
    ],
)
@pytest.mark.parametrize(("before", "after"), [(2, 3), (3, 1), (2, 2)])
def test_sparse_tables_move_to_another_number_of_servers(spec, before, after, tmp_path):
    old = [create_table(spec) for _ in range(before)]
    for seed in (1, 2):
        push_all(old, IDS, seed)
    save_all(tmp_path, old)
    new = [create_table(spec) for _ in range(after)]
    for server, table in enumerate(new):
        load_table(tmp_path, table, server=server, servers=after)
    assert sum(map(len, new)) == sum(map(len, old))
    assert torch.equal(pull_all(new, IDS), pull_all(old, IDS))
    if spec.entry is None or spec.entry.kind == "count":  # dice belong to a server
        push_all(old, IDS, 3)
        push_all(new, IDS, 3)
        assert torch.equal(pull_all(new, IDS), pull_all(old, IDS))


@pytest.mark.parametrize("after", [1, 2, 3])
def test_the_age_of_rows_moves_to_another_number_of_servers(after, tmp_path):
    """Servers that have received more pushes have searched more often than the others."""
    spec = sparse("sgd", eviction=EvictionSpec(max_unseen=2, every=2))
    old = [create_table(spec) for _ in range(2)]
    busy, calm = split_ids(IDS, 2)
    old[1].push(IDS[calm], torch.ones(len(calm), 4))
    for _ in range(11):
        old[0].push(IDS[busy], torch.ones(len(busy), 4))
    assert [table.clock for table in old] == [5, 0]
    save_all(tmp_path, old)
    new = [create_table(spec) for _ in range(after)]
    for server, table in enumerate(new):
        load_table(tmp_path, table, server=server, servers=after)
    ages = {}
    for table in new:
        state = table.state_dict()
        ages |= dict(
            zip(state["ids"].tolist(), (table.clock - state["seen"]).tolist(), strict=True)
        )
    assert ages == dict.fromkeys(IDS.tolist(), 0)
    if after != 2:
        assert {int(table.state_dict()["pushes"]) for table in new} == {1}
    for table in new:
        table.push(IDS[:0], torch.ones(0, 4))
    assert sum(map(len, new)) == len(IDS)


def dense(servers, kind="adam"):
    slices = [
        each
        for name, shape in SHAPES.items()
        for each in slice_parameter(name, shape, servers=servers, min_block_size=2)
    ]
    tables = []
    for server in range(servers):
        blocks = tuple(
            BlockSpec(
                name=s.name,
                parameter=s.parameter,
                shape=s.shape,
                start=s.start,
                initializer=InitializerSpec(kind="normal"),
            )
            for s in slices[server::servers]
        )
        optimizer = OptimizerSpec(kind=kind)
        tables.append(create_table(DenseTableSpec(name="net", blocks=blocks, optimizer=optimizer)))
    return tables, [slices[server::servers] for server in range(servers)]


def push_dense(tables, slices, seed):
    grads = {
        name: torch.randn(shape, generator=torch.Generator().manual_seed(seed))
        for name, shape in SHAPES.items()
    }
    for table, here in zip(tables, slices, strict=True):
        table.push({s.name: s.of(grads[s.parameter]) for s in here})


def whole(tables, slices):
    result = {name: torch.empty(shape) for name, shape in SHAPES.items()}
    for table, here in zip(tables, slices, strict=True):
        for each in here:
            each.of(result[each.parameter]).copy_(table.pull(each.name))
    return result


@pytest.mark.parametrize("kind", ["adam", "torch.Adam"])
@pytest.mark.parametrize(("before", "after"), [(2, 3), (3, 2), (1, 3), (3, 1)])
def test_dense_tables_are_cut_anew(kind, before, after, tmp_path):
    old, new = dense(before, kind), dense(after, kind)
    push_dense(*old, 1)
    save_all(tmp_path, old[0])
    for server, table in enumerate(new[0]):
        load_table(tmp_path, table, server=server, servers=after)
    push_dense(*old, 2)
    push_dense(*new, 2)
    expected, found = whole(*old), whole(*new)
    assert all(torch.equal(expected[name], found[name]) for name in SHAPES)
    assert export_table(tmp_path / "net", tmp_path / "net.npz", format="npz", with_state=True) == 2
    arrays = np.load(tmp_path / "net.npz")
    assert {name: arrays[name].shape for name in SHAPES} == SHAPES
    if kind == "adam":
        assert arrays["w/Moment1"].shape == SHAPES["w"]
        assert arrays["w/Beta1Pow"].shape == (1,)


class TestWholeSaves:
    def test_a_save_that_is_not_finished_leaves_the_old_one(self, tmp_path):
        tables = [create_table(sparse()) for _ in range(2)]
        push_all(tables, IDS, 1)
        save_all(tmp_path, tables, "first")
        kept = pull_all(tables, IDS)
        push_all(tables, IDS, 2)
        state = tables[0].state_dict()
        save_part(tmp_path, tables[0].spec, state, server=0, servers=2, token="second")
        with pytest.raises(FileNotFoundError, match="not complete"):
            finish_save(tmp_path, "emb", servers=2, token="second")
        again = create_table(sparse())
        load_table(tmp_path, again)
        assert torch.equal(again.pull(IDS), kept)
        (left,) = (tmp_path / "emb").glob("part-*-second")
        os.utime(left, (0, 0))  # so old that its writer is certainly gone
        save_all(tmp_path, tables, "third")
        load_table(tmp_path, again)
        assert torch.equal(again.pull(IDS), pull_all(tables, IDS))
        assert len(list((tmp_path / "emb").glob("part-*"))) == 2

    @pytest.mark.slow
    def test_saves_of_several_workers_into_one_folder(self, tmp_path):
        tables = [create_table(sparse()) for _ in range(2)]
        push_all(tables, IDS, 1)

        def save(worker):
            for number in range(20):
                save_all(tmp_path, tables, f"{worker}_{number}")

        save(0)
        again = create_table(sparse())
        with ThreadPoolExecutor() as pool:
            saving = [pool.submit(save, worker) for worker in range(2)]
            while not all(each.done() for each in saving):
                load_table(tmp_path, again)
                assert torch.equal(again.pull(IDS), pull_all(tables, IDS))
            for each in saving:
                each.result()

    def test_parts_of_two_saves_are_not_mixed(self, tmp_path):
        table = create_table(sparse())
        push_all([table], IDS)
        save_table(tmp_path, table, token="one")
        (part,) = (tmp_path / "emb").glob("part-*")
        path = part / "manifest.json"
        manifest = unseal(path.read_bytes(), path)
        manifest["meta"]["token"] = "two"
        path.write_bytes(seal(manifest))
        with pytest.raises(FormatError, match="another save"):
            load_table(tmp_path, create_table(sparse()))

    @pytest.mark.parametrize(
        "page",
        [b"", b"{", b"[]", b'{"format": "other"}', b'{"format": "fleetx-table", "version": 9}']
        + [b'{"format": "fleetx-table", "version": 1, "name": "emb", "token": "x", "parts": [1]}'],
    )
    def test_a_damaged_page_is_named(self, page, tmp_path):
        (tmp_path / "table.json").write_bytes(page)
        with pytest.raises(FormatError, match="table.json"):
            SavedTable(tmp_path)

    def test_a_path_out_of_the_folder_is_refused(self, tmp_path):
        page = {"format": "fleetx-table", "version": 1, "name": "e", "token": "", "parts": ["../x"]}
        (tmp_path / "table.json").write_text(json.dumps(page))
        with pytest.raises(ValueError, match="cannot be the name"):
            SavedTable(tmp_path).part(0)
        with pytest.raises(ValueError, match="token"):
            save_part(tmp_path, sparse(), {}, server=0, servers=1, token="../x")
        with pytest.raises(ValueError, match="no server 1"):
            save_part(tmp_path, sparse(), {}, server=1, servers=1, token="x")

    def test_another_kind_or_size_of_table(self, tmp_path):
        table = create_table(sparse())
        push_all([table], IDS)
        save_table(tmp_path, table)
        wider = create_table(SparseTableSpec(name="emb", dim=5))
        with pytest.raises(ValueError, match="needs 'Param' of shape"):
            load_table(tmp_path, wider)
        other = BlockSpec(name="emb", parameter="emb", shape=(3,))
        with pytest.raises(FormatError, match="dense table"):
            load_table(tmp_path, create_table(DenseTableSpec(name="emb", blocks=(other,))))
        with pytest.raises(FileNotFoundError, match="no saved table"):
            load_table(tmp_path / "emb", table)

    def test_a_parameter_that_was_not_saved(self, tmp_path):
        (table,), _ = dense(1)
        save_table(tmp_path, table)
        more = BlockSpec(name="v", parameter="v", shape=(3,))
        with pytest.raises(FormatError, match="0 of the 3 elements of 'v'"):
            load_table(tmp_path, create_table(DenseTableSpec(name="net", blocks=(more,))))
