"""Finding and loading saved models: every format gives the same answers under the same names."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from fleetx.checkpoint import FormatError
from fleetx.serving import RequestError, load_model

GOLDEN = Path(__file__).parent.parent / "checkpoint" / "golden"


@pytest.fixture
def real_paddle_folder(tmp_path):
    """A model whose program Paddle 1.8.5 wrote."""
    shutil.copy(GOLDEN / "paddle18" / "__model__", tmp_path)
    return tmp_path


def assert_same(outputs, expected):
    for value, wanted in zip(outputs.values(), expected, strict=True):
        assert value.dtype == wanted.dtype
        np.testing.assert_allclose(value, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("path", ["two", "two/net", "two/net.pdmodel", "one", "one_combined"])
def test_paddle_formats_compute_what_the_program_does(folder, path, inputs, expected):
    model = load_model(folder / path)
    assert [str(spec) for spec in model.inputs] == ["float32 [any, 4]", "int64 [any, 1]"]
    assert [spec.shape for spec in model.outputs] == [(-1, 3), (-1, 8)]
    assert_same(model.run(inputs), expected)


def test_exported_program_computes_the_same(pt2_file, inputs, expected):
    model = load_model(pt2_file)
    assert [spec.name for spec in model.inputs] == ["x", "word"]
    assert_same(model.run(inputs), expected)
    assert_same(model.run({k: v[:1] for k, v in inputs.items()}), [v[:1] for v in expected])


@pytest.mark.slow
def test_onnx_computes_the_same(onnx_file, inputs, expected):
    model = load_model(onnx_file, threads=1)
    assert [spec.to_dict() for spec in model.inputs] == [
        {"name": "x", "shape": [-1, 4], "dtype": "float32"},
        {"name": "word", "shape": [-1, 1], "dtype": "int64"},
    ]
    assert_same(model.run(inputs), expected)


class Plain(torch.nn.Module):
    """A third-party module with named inputs and nested outputs."""

    def forward(self, left, *, right):
        return {"sum": left + right, "more": [left.bfloat16()]}


def test_foreign_pt2_keeps_the_names_of_torch(tmp_path):
    rows = torch.export.Dim("rows")
    exported = torch.export.export(
        Plain(),
        (torch.zeros(2, 3),),
        {"right": torch.zeros(2, 3)},
        dynamic_shapes={"left": {0: rows}, "right": {0: rows}},
    )
    torch.export.save(exported, tmp_path / "plain.pt2")
    model = load_model(tmp_path)
    assert [spec.name for spec in model.inputs] == ["left", "right"]
    left = np.full((1, 3), 1.5, "float32")
    first, second = model.run({"left": left, "right": left}).values()
    np.testing.assert_array_equal(first, left * 2)
    np.testing.assert_array_equal(second, left)
    assert second.dtype == np.float32


def test_files_of_real_paddles_are_served(real_paddle_folder):
    x = np.eye(3, dtype="float32")
    model = load_model(GOLDEN / "paddle26")  # beside a program saved for training
    (newer,) = model.run({"x": x}).values()
    for name in ("w", "__params__"):  # a file of its own, and one for all variables
        shutil.copy(GOLDEN / "paddle26" / "inference.pdiparams", real_paddle_folder / name)
        (older,) = load_model(real_paddle_folder).run({"x": x}).values()
        (real_paddle_folder / name).unlink()
        np.testing.assert_array_equal(older, newer)


def test_missing_parameters_are_named(real_paddle_folder):
    with pytest.raises(FileNotFoundError, match="needs the file 'w' next to it"):
        load_model(real_paddle_folder)


def test_version_and_checksum_tell_models_apart(folder, tmp_path):
    first = load_model(folder / "two")
    assert first.checksum.startswith("sha256:")
    assert first.version == first.checksum[7:19]
    shutil.copytree(folder / "two", tmp_path / "copy", ignore=shutil.ignore_patterns(".fleetx"))
    assert load_model(tmp_path / "copy", version="v3").checksum == first.checksum
    changed = bytearray((tmp_path / "copy" / "net.pdiparams").read_bytes())
    changed[-1] ^= 1
    (tmp_path / "copy" / "net.pdiparams").write_bytes(changed)
    other = load_model(tmp_path / "copy", version="v3")
    assert other.checksum != first.checksum
    assert other.version == "v3"
    with pytest.raises(ValueError, match="visible ASCII"):
        load_model(folder / "two", version="two words")


def test_what_is_no_model_is_named(folder, tmp_path):
    with pytest.raises(FileNotFoundError, match="there is no model in .*nowhere"):
        load_model(tmp_path / "nowhere")
    (tmp_path / "a.pt2").write_bytes(b"nothing")
    with pytest.raises(FormatError, match=r"a\.pt2: is not a file of torch\.export"):
        load_model(tmp_path)
    (tmp_path / "b.onnx").write_bytes(b"nothing")
    with pytest.raises(FormatError, match=r"holds several models; pass one of a\.pt2, b\.onnx"):
        load_model(tmp_path)
    with pytest.raises(FormatError, match=r"b\.onnx: cannot be loaded by ONNX Runtime"):
        load_model(tmp_path / "b.onnx")
    with pytest.raises(FormatError, match="is not a model"):
        load_model(__file__)
    with pytest.raises(FormatError, match="does not declare its inputs and outputs"):
        load_model(GOLDEN / "paddle26" / "saved.pdmodel")


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"x": None}, "input 'x' is missing"),
        ({"y": np.zeros(1)}, "the model has no input 'y'; its inputs are x, word."),
        ({"x": np.zeros((5, 4))}, "input 'x' holds float64, but the model takes float32."),
        (
            {"x": np.zeros((5, 3), "float32")},
            r"input 'x' has the shape \[5, 3\], but the model takes float32 \[any, 4\].",
        ),
    ],
)
def test_wrong_inputs_are_named(folder, inputs, change, sentence):
    model = load_model(folder / "two")
    given = {k: v for k, v in {**inputs, **change}.items() if v is not None}
    with pytest.raises(RequestError, match=sentence):
        model.run(given)


def test_the_checksum_does_not_depend_on_the_order_of_files(tmp_path):
    from fleetx.serving.model_files import checksum_of

    files = [tmp_path / "model.pt2"]
    files += [tmp_path / "tables" / table / "table.json" for table in "abcdefgh"]
    for number, path in enumerate(files):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(str(number))
    whole = checksum_of(files)
    assert all(checksum_of(files[n:] + files[:n]) == whole for n in range(len(files)))
    # Contents that change places make another model.
    files[1].write_text("2")
    files[2].write_text("1")
    assert checksum_of(files) != whole
    assert checksum_of(files[:1]) == checksum_of([tmp_path / "." / "model.pt2"])
