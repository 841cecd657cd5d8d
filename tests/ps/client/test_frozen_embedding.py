"""Embeddings with the rows of a save: as trained, mapped, exported, with what changed since."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import fleetx
from fleetx.checkpoint import FormatError
from fleetx.ps.client.table_lookup import without_tables
from fleetx.ps.tables.row_rules import EntrySpec
from fleetx.ps.tables.table_files import SERVERS, finish_save, save_part
from fleetx.ps.tables.table_spec import InitializerSpec, SparseTableSpec
from fleetx.ps.wire.partition import servers_of_ids

EDGES = torch.tensor([7, -9, 2**63 - 1, -(2**63)])


def save(
    folder: Path, ids: torch.Tensor, rows: torch.Tensor, servers: int = 1, **settings: object
) -> Path:
    """Save a table as servers do; return the path that users name it by."""
    spec = SparseTableSpec(name="user", dim=rows.shape[1], **settings)  # type: ignore[arg-type]
    for server in range(servers):
        mine = servers_of_ids(ids, servers) == server
        state = {"ids": ids[mine], "Param": rows[mine]}
        save_part(folder / SERVERS, spec, state, server=server, servers=servers, token="a1")
    finish_save(folder / SERVERS, "user", servers=servers, token="a1")
    return folder / "user"


def table(count: int = 500) -> tuple[torch.Tensor, torch.Tensor]:
    ids = torch.randint(-(2**62), 2**62, (count,)).unique()
    return ids[torch.randperm(len(ids))], torch.randn(len(ids), 6)


@pytest.mark.parametrize("servers", [1, 3])
def test_rows_are_those_of_the_save(tmp_path: Path, servers: int) -> None:
    ids, rows = table()
    found = fleetx.load_embedding(save(tmp_path, ids, rows, servers))
    assert torch.equal(found(ids), rows)
    assert torch.equal(found(ids[:6].reshape(2, 3)), rows[:6].reshape(2, 3, 6))
    assert torch.equal(found(EDGES), torch.zeros(4, 6))
    assert len(found) == len(ids)
    assert not found.state_dict()
    assert not list(found.parameters())


@pytest.mark.parametrize("swapped", [None, (65535, 65536), (69998, 69999)])
def test_sorted_ids_need_no_index(tmp_path: Path, swapped: tuple[int, int] | None) -> None:
    ids, rows = 3 * torch.arange(70_000) - 100, torch.randn(70_000, 2)
    if swapped:
        ids[list(swapped)] = ids[list(reversed(swapped))]
    found = fleetx.load_embedding(save(tmp_path, ids, rows))
    assert isinstance(found, fleetx.FrozenEmbedding)
    assert (found.place is None) == (swapped is None)
    asked = torch.cat([ids[65_530:65_540], ids[69_990:], ids[:2] + 1])
    wanted = torch.cat([rows[65_530:65_540], rows[69_990:], torch.zeros(2, 2)])
    assert torch.equal(found(asked), wanted)
    program = torch.export.export(found, (asked,))
    assert torch.equal(program.module()(asked), wanted)


@pytest.mark.parametrize(
    ("initializer", "entry", "value"),
    [
        (InitializerSpec(kind="constant", settings={"value": 0.5}), None, 0.5),
        (InitializerSpec(kind="normal", settings={"mean": 2.0, "std": 0.1}), None, 2.0),
        (InitializerSpec(kind="uniform", settings={"low": 0.0, "high": 1.0}), None, 0.5),
        (
            InitializerSpec(kind="constant", settings={"value": 0.5}),
            EntrySpec(kind="count", value=2),
            0.0,
        ),
    ],
)
def test_ids_without_a_row_read_the_default_row(
    tmp_path: Path, initializer: InitializerSpec, entry: EntrySpec | None, value: float
) -> None:
    ids, rows = table(5)
    where = save(tmp_path, ids, rows, initializer=initializer, entry=entry)
    assert torch.equal(fleetx.load_embedding(where)(EDGES), torch.full((4, 6), value))


def test_a_padding_id_reads_zeros_and_an_empty_table_its_default_row(tmp_path: Path) -> None:
    ids, rows = table(5)
    found = fleetx.load_embedding(save(tmp_path / "a", ids, rows), padding_idx=int(ids[0]))
    assert torch.equal(found(ids), torch.cat([torch.zeros(1, 6), rows[1:]]))
    empty = fleetx.load_embedding(save(tmp_path / "b", ids[:0], rows[:0]))
    assert torch.equal(empty(ids), torch.zeros(5, 6))


@pytest.mark.slow
@pytest.mark.parametrize("servers", [1, 2])
def test_a_frozen_table_is_exported_with_the_model(tmp_path: Path, servers: int) -> None:
    import onnxruntime

    ids, rows = table()
    model = nn.Sequential(
        fleetx.load_embedding(save(tmp_path, ids, rows, servers)), nn.Linear(6, 2)
    )
    probe = torch.cat([ids[:50], EDGES])
    with torch.no_grad():
        expected = model(probe)
    shapes = ({0: torch.export.Dim("rows")},)
    program = torch.export.export(model, (ids[:4],), dynamic_shapes=shapes)
    torch.export.save(program, tmp_path / "model.pt2")
    loaded = torch.export.load(tmp_path / "model.pt2").module()
    assert torch.allclose(loaded(probe), expected)
    made = torch.onnx.export(model, (ids[:4],), dynamic_shapes=shapes, dynamo=True, verbose=False)
    made.save(str(tmp_path / "model.onnx"))
    session = onnxruntime.InferenceSession(str(tmp_path / "model.onnx"))
    (found,) = session.run(None, {session.get_inputs()[0].name: probe.numpy()})
    assert np.allclose(found, expected, atol=1e-5)


def test_rows_that_changed_are_saved_alone(tmp_path: Path) -> None:
    ids, rows = table()
    old = save(tmp_path / "old", ids, rows, 2)
    changed = rows.clone()
    changed[:7] += 1
    more = torch.cat([ids, torch.tensor([1, 2])])
    new = save(tmp_path / "new", more, torch.cat([changed, torch.ones(2, 6)]), 3)
    folders = [each.parent / SERVERS / "user" for each in (old, new)]
    assert fleetx.save_delta(*folders, tmp_path / "whole" / "user") == 9
    assert fleetx.save_delta(old, new, tmp_path / "delta" / "user") == 9
    with pytest.raises(ValueError, match=r"the folder of a delta has the name .* 'd/user'"):
        fleetx.save_delta(old, new, "d")
    delta = fleetx.load_embedding(tmp_path / "delta" / "user")
    assert len(delta) == 9
    both = fleetx.load_embedding(old, deltas=[tmp_path / "delta" / "user"])
    assert torch.equal(both(more), fleetx.load_embedding(new)(more))
    assert len(both) == len(more)
    with pytest.raises(ValueError, match=r"2 rows of 'user' .* are not in"):
        fleetx.save_delta(folders[1], folders[0], tmp_path / "other" / "user")
    with pytest.raises(ValueError, match="takes no deltas"):
        fleetx.load_embedding(old, trainable=True, deltas=[tmp_path / "delta" / "user"])


def test_a_trainable_one_goes_on_with_its_rows(tmp_path: Path) -> None:
    ids, rows = table(10)
    found = fleetx.load_embedding(save(tmp_path, ids, rows, 2), trainable=True)
    assert isinstance(found, fleetx.SparseEmbedding)
    found(ids).sum().backward()
    found.apply_gradients(0.1)
    with torch.no_grad():
        assert torch.allclose(found(ids), rows - 0.1)


def test_embeddings_of_one_name_share_the_frozen_rows(tmp_path: Path) -> None:
    ids, rows = table(10)
    save(tmp_path, ids, rows)
    first, second = (fleetx.SparseEmbedding("user", 6) for _ in range(2))
    model = fleetx.freeze_embeddings(nn.ModuleDict({"a": first, "b": second}), tmp_path)
    assert model["a"] is model["b"]
    alone = fleetx.freeze_embeddings(fleetx.SparseEmbedding("user", 6), tmp_path)
    assert torch.equal(alone(ids), rows)


def test_what_is_no_table_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="there is no saved table"):
        fleetx.load_embedding(tmp_path / "user")
    ids, rows = table(3)
    where = save(tmp_path, ids, rows)
    (part,) = (tmp_path / SERVERS / "user").glob("part-*/*.safetensors")
    content = bytearray(part.read_bytes())
    content[-1] ^= 1
    part.write_bytes(content)
    with pytest.raises(FormatError, match="damaged or replaced"):
        fleetx.load_embedding(where)
    padded = nn.Sequential(fleetx.SparseEmbedding("user", 6, padding_idx=0))
    with pytest.raises(ValueError, match="has padding_idx=0"):
        without_tables(padded)


def test_an_unknown_optimizer_of_rows_is_refused_with_those_that_exist() -> None:
    with pytest.raises(ValueError, match=r"optimizer='sparseadam': use sgd, .*, sparse_adam\."):
        fleetx.SparseEmbedding("user", 4, optimizer="sparseadam")


def test_sparse_adam_of_rows_is_that_of_torch() -> None:
    plain = nn.Embedding(20, 4, sparse=True)
    rows = fleetx.SparseEmbedding("user", 4, optimizer="sparse_adam")
    rows(torch.arange(20))
    source = rows.source
    source.table.add(torch.arange(20), plain.weight.detach() - source.table.pull(torch.arange(20)))
    theirs = torch.optim.SparseAdam(plain.parameters(), lr=0.1)
    for step in range(5):
        ids = torch.tensor([1, 2, step + 3])
        for module in (plain, rows):
            module(ids).square().sum().backward()
        theirs.step()
        theirs.zero_grad()
        rows.apply_gradients(0.1)
    with torch.no_grad():
        assert torch.allclose(rows(torch.arange(20)), plain.weight, atol=1e-6)
