"""The evaluation of the collective guide: with the project's script, and as the document prints it.

Where the documents lie beside the project their program runs word by word, with the network and
the reader of examples/imagenet around it. The text is no part of this project.
"""

import re
import shutil
import subprocess
import sys

import numpy as np
import pytest
from evaluated_servers import ROOT
from PIL import Image
from safetensors.numpy import load_file

import warm_start
from fleetx import cli
from fleetx.evaluation.vectors_file import open_vectors

DOCUMENTS = ROOT.parent / "shared" / "seeds"
EXAMPLE = ROOT / "examples" / "imagenet"
SMALL = ("--image_shape", "3,32,32", "--class_dim", "10", "--model", "ResNet18")


@pytest.fixture(scope="module")
def imagenet(tmp_path_factory):
    """A folder as the document describes it, of ten pictures."""
    root = tmp_path_factory.mktemp("imagenet")
    random = np.random.default_rng(0)
    for phase in ("train", "val"):
        lines = []
        for i in range(5):
            path = root / phase / f"n0{i % 2}" / f"{i}.jpeg"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(random.integers(0, 256, (50, 60, 3), np.uint8)).save(path)
            lines.append(f"n0{i % 2}/{i}.jpeg {i}\n")
        (root / f"{phase}.txt").write_text("".join(lines))
    return root


def run(folder, *command):
    done = subprocess.run(
        [sys.executable, *map(str, command)],
        cwd=folder,
        env=warm_start.environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-3000:]
    return done.stdout


@pytest.mark.slow
def test_vectors_of_the_example_are_those_of_its_model(imagenet, tmp_path, capsys):
    printed = run(
        tmp_path,
        *(EXAMPLE / "evaluate.py", "--data_dir", imagenet, "--batch_size", 2, *SMALL),
        *("--resize_short_size", 40, "--output", tmp_path / "v"),
    )
    assert "batch: 0" in printed
    assert "5 vectors in" in printed
    out = tmp_path / "again.safetensors"
    command = ["evaluate", str(tmp_path / "v"), "--data", str(imagenet), "--out", str(out)]
    assert cli.main([*command, "--resize_short_size", "40"]) == 0
    capsys.readouterr()
    wanted, found = load_file(tmp_path / "v.safetensors"), load_file(out)
    ids = wanted.pop("sample_ids")
    np.testing.assert_array_equal(found.pop("sample_ids"), ids)
    (vectors,) = found.values()
    assert vectors.shape == (5, 10)
    np.testing.assert_allclose(vectors, wanted["vector"], rtol=1e-4, atol=1e-5)
    assert open_vectors(out).ids(0, 2) == ["n00/0.jpeg", "n01/1.jpeg"]


@pytest.mark.slow
@pytest.mark.skipif(
    not DOCUMENTS.is_dir(),
    reason="not beside the project: documents, data",
)
def test_program_of_the_document(imagenet, tmp_path):
    (document,) = DOCUMENTS.glob("000_*")
    blocks = re.findall(r"^```python\n(.*?)^```", document.read_text(), re.S | re.M)
    text = next(each for each in blocks if "def build_program" in each)
    for part in ("models", "utils"):
        shutil.copytree(EXAMPLE / part, tmp_path / part)
    (tmp_path / "evaluation.py").write_text(text)
    assert "batch: 0\n" in run(tmp_path, "evaluation.py", "--data_dir", imagenet, *SMALL)
