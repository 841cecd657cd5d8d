"""Vectors: written row by row, readable by safetensors, equal to a run of the model by hand."""

import re

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from fleetx import cli, static
from fleetx.checkpoint import FormatError
from fleetx.evaluation.evaluate import run_any
from fleetx.evaluation.evaluation_error import EvaluationError
from fleetx.evaluation.samples import open_samples
from fleetx.evaluation.vectors_file import open_vectors, vectors_file
from fleetx.serving.model import load_model
from fleetx.serving.tensor_spec import TensorSpec

SPEC = (TensorSpec("x", (-1, 2), "float32"),)


@pytest.mark.slow
def test_vectors_are_those_of_the_model(models, pictures, tmp_path, capsys):
    model = load_model(models[0])
    wanted = model.run({"picture": np.load(pictures)["picture"]})
    (name,) = wanted
    for jobs in (1, 2):
        out = tmp_path / f"{jobs}.safetensors"
        command = ["evaluate", str(models[0]), "--data", str(pictures), "--out", str(out)]
        assert cli.main([*command, "--jobs", str(jobs), "--batch", "7"]) == 0
        assert "40 samples in" in re.sub(r"\s+", " ", capsys.readouterr().out)
        found = load_file(out)
        np.testing.assert_allclose(found[name], wanted[name], rtol=1e-5, atol=1e-6)
        assert found["sample_ids"].shape == (40, len("picture-000.png"))
        assert bytes(found["sample_ids"][39]) == b"picture-039.png"
        with safe_open(out, "np") as file:
            assert file.metadata()["checksum"] == model.checksum
        vectors = open_vectors(out)
        assert len(vectors) == 40
        assert vectors.ids(38, 40) == ["picture-038.png", "picture-039.png"]
        np.testing.assert_array_equal(vectors.read(5, 9)[name], found[name][5:9])


def test_several_outputs_of_several_types(tmp_path):
    path = tmp_path / "v.safetensors"
    rows = {"a": np.arange(6, dtype="int64"), "b": np.ones((6, 2, 3), "float16")}
    with vectors_file(path, 6, 4, {"k": "v"}) as file:
        for at in (0, 4):
            part = slice(at, at + 4)
            file.add(["é"] * len(rows["a"][part]), {n: v[part] for n, v in rows.items()})
    found = load_file(path)
    for name, array in rows.items():
        np.testing.assert_array_equal(found[name], array)
    assert open_vectors(path).ids(0, 1) == ["é"]


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([3, 1], "4 of 5 samples were evaluated"),
        ([3, 2, 0], "began with rows of shape"),
    ],
)
def test_incomplete_vectors_are_not_written(rows, words, tmp_path):
    path = tmp_path / "v.safetensors"
    path.write_bytes(b"before")

    def write():
        with vectors_file(path, 5, 1, {}) as file:
            for number, count in enumerate(rows):
                width = 2 if number < 2 else 3
                file.add(["i"] * max(count, 1), {"y": np.zeros((max(count, 1), width))})

    with pytest.raises(EvaluationError, match=words):
        write()
    assert path.read_bytes() == b"before"
    assert [each.name for each in tmp_path.iterdir()] == ["v.safetensors"]


def read_all(path, **options):
    with open_samples(path, SPEC, **options) as samples:
        count = len(samples)
        ids = samples.ids(0, count)
        rows = [samples.read(at, min(at + 2, count))["x"] for at in range(0, count, 2)]
        return ids, np.concatenate(rows)


class TestSamples:
    rows = np.arange(10, dtype="float32").reshape(5, 2)

    def save(self, kind, folder):
        path = folder / f"samples.{kind.split()[0]}"
        if kind == "npy":
            np.save(path, self.rows)
        elif kind == "npy columns":
            np.save(path, np.asfortranarray(self.rows))
        elif kind == "npz":
            np.savez(path, x=self.rows, label=np.zeros(3))
        elif kind == "npz packed":
            np.savez_compressed(path, x=self.rows.astype("float64"))
        else:
            save_file({"x": self.rows, "y": np.zeros(1)}, path)
        return path

    @pytest.mark.parametrize("kind", ["npy", "npy columns", "npz", "npz packed", "safetensors"])
    def test_every_format(self, kind, tmp_path):
        ids, rows = read_all(self.save(kind, tmp_path))
        assert ids == ["0", "1", "2", "3", "4"]
        assert rows.dtype == np.float32
        np.testing.assert_array_equal(rows, self.rows)

    def test_ids_names_and_limit(self, tmp_path):
        path = tmp_path / "s.npz"
        np.savez(path, a=self.rows, b=self.rows + 1, sample_ids=np.array([9, 8, 7, 6, 5]))
        ids, rows = read_all(path, names={"x": "b"}, limit=3)
        assert ids == ["9", "8", "7"]
        np.testing.assert_array_equal(rows, self.rows[:3] + 1)

    @pytest.mark.parametrize(
        ("arrays", "words"),
        [
            ({"a": rows, "b": rows}, "has no array 'x' .* its arrays are 'a', 'b'.*--input x="),
            ({"x": rows[:, :1]}, r"shape \[5, 1\] for input 'x', but the model takes float32"),
            ({"x": rows.astype("uint8")}, "holds uint8 for input 'x', but the model takes float32"),
            ({"x": rows[:0]}, "holds no samples"),
            ({"x": rows, "sample_ids": np.arange(4)}, "x has 5, sample_ids has 4"),
            ({"x": np.array([[object()]])}, "holds Python objects"),
        ],
    )
    def test_what_does_not_fit(self, arrays, words, tmp_path):
        path = tmp_path / "s.npz"
        np.savez(path, **arrays)
        with pytest.raises((EvaluationError, FormatError), match=words) as raised:
            read_all(path)
        assert str(path) in str(raised.value)

    @pytest.mark.parametrize("suffix", ["npy", "npz", "safetensors", "csv"])
    def test_damaged_files_are_named(self, suffix, tmp_path):
        path = tmp_path / f"s.{suffix}"
        path.write_bytes(b"\x10\0\0\0\0\0\0\0this is nothing that holds arrays")
        with pytest.raises(FormatError, match=f"s.{suffix}: "):
            read_all(path)

    def test_a_file_that_was_cut_off(self, tmp_path):
        path = self.save("npy", tmp_path)
        path.write_bytes(path.read_bytes()[:-4])
        with pytest.raises(FormatError, match="it ends before row 5 of 5"):
            read_all(path)


def test_models_that_take_so_many_samples_at_a_time(tmp_path, capsys):
    main, startup = static.Program(), static.Program()
    with static.program_guard(main, startup):
        x = static.data("x", [4, 2], "float32")
        y = static.layers.fc(x, size=3)
    exe = static.Executor(static.CPUPlace())
    exe.run(startup)
    path, out = tmp_path / "m", tmp_path / "v.safetensors"
    static.io.save_inference_model(path, [x], [y], exe, program=main)
    rows = np.random.default_rng(0).standard_normal((10, 2)).astype("float32")
    np.save(tmp_path / "x.npy", rows)
    command = ["evaluate", str(path), "--data", str(tmp_path / "x.npy"), "--out", str(out)]
    assert cli.main(command) == 2
    assert "takes 4 samples at a time" in capsys.readouterr().err
    assert cli.main([*command, "--limit", "8"]) == 0
    (name,) = set(load_file(out)) - {"sample_ids"}
    found = run_any(load_model(path), {"x": rows[:7]})
    np.testing.assert_array_equal(load_file(out)[name][:7], found[name])


def test_wrong_usage_has_status_2(models, tmp_path, capsys):
    def said(*command):
        assert cli.main(["evaluate", *map(str, command)]) == 2
        return re.sub(r"\s+", " ", capsys.readouterr().err)

    now = models[0]
    nowhere = tmp_path / "nowhere.npz"
    assert "there are no samples at" in said(now, "--data", nowhere)
    assert "there is no model in" in said(nowhere, "--data", nowhere)
    report = said(now, "--data", nowhere, "--report", "x.html")
    assert "pass the endpoint with --against" in report
    assert "write NAME=VALUE" in said(now, "--data", nowhere, "--input", "x")
    assert "write 1e-4" in said(now, "--data", nowhere, "--tolerance", "x=y")
    with pytest.raises(SystemExit) as stopped:
        cli.main(["evaluate", str(now), "--data", "x", "--jobs", "0"])
    assert stopped.value.code == 2
