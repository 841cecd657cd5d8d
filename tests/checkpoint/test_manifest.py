import json
import random

import pytest
import torch

from fleetx.checkpoint import FormatError
from fleetx.checkpoint.manifest import MANIFEST, load_state, save_state
from fleetx.checkpoint.sealed_json import seal, unseal

TENSORS = {
    "w": torch.arange(12.0).reshape(3, 4),
    "b": torch.tensor([1, 2**40]),
    "flag": torch.tensor(True),
    "half": torch.tensor([1.5, -2.0], dtype=torch.bfloat16),
    "empty": torch.zeros(0, 3),
    "turned": torch.arange(6.0).reshape(2, 3).T,
}


def test_round_trip(tmp_path):
    save_state(tmp_path, TENSORS, {"step": 3, "names": ["a"]})
    tensors, meta = load_state(tmp_path)
    assert meta == {"step": 3, "names": ["a"]}
    assert tensors.keys() == TENSORS.keys()
    for name, tensor in TENSORS.items():
        assert tensors[name].dtype == tensor.dtype
        assert torch.equal(tensors[name], tensor)


def test_new_state_replaces_the_old_one(tmp_path):
    save_state(tmp_path, TENSORS, {"step": 1})
    save_state(tmp_path, {"w": torch.zeros(2)}, {"step": 2})
    tensors, meta = load_state(tmp_path)
    assert meta == {"step": 2}
    assert list(tensors) == ["w"]
    assert len(list(tmp_path.iterdir())) == 2


def test_failed_save_keeps_the_old_state(tmp_path):
    save_state(tmp_path, TENSORS, {"step": 1})
    with pytest.raises(TypeError, match="'w' has type"):
        save_state(tmp_path, {"w": torch.zeros(2, dtype=torch.complex64)}, {})
    with pytest.raises(TypeError, match="not JSON serializable"):
        save_state(tmp_path, {"w": torch.zeros(2)}, {"bad": object()})
    assert load_state(tmp_path)[1] == {"step": 1}
    assert len(list(tmp_path.iterdir())) == 2


def data_file(folder):
    return next(folder.glob("*.safetensors"))


@pytest.mark.parametrize("threads", [1, 3])
def test_one_flipped_bit_is_found(tmp_path, threads):
    save_state(tmp_path, TENSORS)
    path = data_file(tmp_path)
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(FormatError, match=r"safetensors: tensor '\w+' has blake2b .* damaged"):
        load_state(tmp_path, threads=threads)


def test_truncated_and_foreign_files_are_refused(tmp_path):
    save_state(tmp_path, TENSORS)
    path = data_file(tmp_path)
    whole = path.read_bytes()
    for data in (b"", whole[:5], whole[:-1], whole + b"x", b"PK" * 100):
        path.write_bytes(data)
        with pytest.raises(FormatError, match="safetensors"):
            load_state(tmp_path)


def change(folder, **values):
    path = folder / MANIFEST
    path.write_bytes(seal({**unseal(path.read_bytes(), path), **values}))


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"format": "other"}, "not the manifest"),
        ({"version": 3}, "version 3"),
        ({"tensors": []}, "does not list"),
        ({"tensors": {}}, "file and manifest differ"),
    ],
)
def test_damaged_manifest_is_refused(tmp_path, values, problem):
    save_state(tmp_path, TENSORS)
    change(tmp_path, **values)
    with pytest.raises(FormatError, match=problem):
        load_state(tmp_path)


def test_manifest_cannot_point_outside(tmp_path):
    save_state(tmp_path, TENSORS)
    change(tmp_path, file="../../etc/passwd")
    with pytest.raises(ValueError, match="cannot be the name of a file"):
        load_state(tmp_path)


def test_cut_manifest_is_refused(tmp_path):
    save_state(tmp_path, TENSORS)
    path = tmp_path / MANIFEST
    path.write_text(path.read_text()[:-5])
    with pytest.raises(FormatError, match="does not match its checksum"):
        load_state(tmp_path)


def test_no_flipped_bit_of_any_file_is_loaded(tmp_path):
    save_state(tmp_path, TENSORS, {"rate": 0.001, "step": 3})
    generator = random.Random(7)
    for path in sorted(tmp_path.iterdir()):
        content = path.read_bytes()
        for _ in range(150):
            at = generator.randrange(len(content))
            damaged = bytearray(content)
            damaged[at] ^= 1 << generator.randrange(8)
            path.write_bytes(damaged)
            with pytest.raises((FormatError, ValueError)):
                load_state(tmp_path)
        path.write_bytes(content)
    load_state(tmp_path)


def test_a_manifest_of_fleetx_0_1_is_read(tmp_path):
    save_state(tmp_path, TENSORS, {"step": 3})
    path = tmp_path / MANIFEST
    old = unseal(path.read_bytes(), path) | {"version": 1}
    path.write_text(json.dumps(old))
    assert load_state(tmp_path)[1] == {"step": 3}
    path.write_text(json.dumps(old | {"version": 2}))
    with pytest.raises(FormatError, match="version 2 and no checksum"):
        load_state(tmp_path)
