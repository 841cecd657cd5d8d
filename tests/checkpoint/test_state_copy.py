"""Some tensors of a checkpoint are copied with their checksums, byte for byte."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest
import torch

from fleetx.checkpoint import FormatError
from fleetx.checkpoint.manifest import MANIFEST, load_state, save_state
from fleetx.checkpoint.state_copy import copy_state, read_meta

TENSORS = {
    "ids": torch.arange(1000),
    "Param": torch.randn(1000, 3),
    "Moment": torch.randn(1000, 3),
    "flag": torch.tensor([True]),
    "none": torch.empty(0, 4),
}


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    save_state(tmp_path / "saved", TENSORS, {"note": "all"})
    return tmp_path / "saved"


@pytest.mark.parametrize("names", [("ids", "Param"), ("Param",), ("none", "flag"), tuple(TENSORS)])
def test_a_copy_loads_as_if_it_had_been_saved(
    saved: Path, tmp_path: Path, names: tuple[str, ...]
) -> None:
    copy_state(saved, tmp_path / "copy", names, {"note": "some"})
    found, meta = load_state(tmp_path / "copy")
    assert meta == read_meta(tmp_path / "copy") == {"note": "some"}
    assert found.keys() == set(names)
    for name in names:
        assert torch.equal(found[name], TENSORS[name])
    save_state(tmp_path / "plain", {name: TENSORS[name] for name in names}, {"note": "some"})
    for each in (tmp_path / "plain").iterdir():
        if each.name != MANIFEST:
            assert each.read_bytes() == (tmp_path / "copy" / each.name).read_bytes()


def test_file_systems_that_cannot_copy(
    saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> int:
        raise OSError(errno.EXDEV, "between two file systems")

    monkeypatch.setattr(os, "copy_file_range", refused)
    copy_state(saved, tmp_path / "copy", ("ids", "Param"), {})
    assert torch.equal(load_state(tmp_path / "copy")[0]["Param"], TENSORS["Param"])


def test_damage_is_found_when_the_copy_is_loaded(saved: Path, tmp_path: Path) -> None:
    (data,) = saved.glob("*.safetensors")
    damaged = bytearray(data.read_bytes())
    begin = damaged.index(TENSORS["Param"].numpy().tobytes())
    damaged[begin + 40] ^= 1
    data.write_bytes(damaged)
    copy_state(saved, tmp_path / "copy", ("ids", "Param"), {})
    with pytest.raises(FormatError, match="Param"):
        load_state(tmp_path / "copy")


def test_what_cannot_be_copied(saved: Path, tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="has no tensor 'rows'"):
        copy_state(saved, tmp_path / "copy", ("rows",), {})
    (data,) = saved.glob("*.safetensors")
    whole = data.read_bytes()
    length = int.from_bytes(whole[:8], "little")
    header = json.loads(whole[8 : 8 + length])
    header["Param"]["data_offsets"] = [0, 10**12]
    moved = json.dumps(header).encode().ljust(length)
    longer = len(moved).to_bytes(8, "little") + moved + whole[8 + length :]
    for bad in (b"", whole[:4], whole[:200], b"\xff" * 100, longer, whole[: len(whole) // 2]):
        data.write_bytes(bad)
        with pytest.raises(FormatError, match="truncated or not a safetensors file"):
            copy_state(saved, tmp_path / "copy", ("ids", "Param", "Moment"), {})
        assert not (tmp_path / "copy" / MANIFEST).exists()
