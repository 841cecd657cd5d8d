"""Photographs of a list as samples, against an endpoint that gets the files and prepares them."""

import re

import numpy as np
import pytest
from PIL import Image

from fleetx import cli
from fleetx.data.imagenet import ImageNet
from fleetx.data.imagenet_augment import Augment
from fleetx.evaluation.evaluation_error import EvaluationError
from fleetx.evaluation.samples import open_samples
from fleetx.serving.tensor_spec import TensorSpec

ADAPTER = """
import base64
import json
import numpy as np

def encode(inputs, files):
    photos = [base64.b64encode(open(file, "rb").read()).decode() for file in files]
    return json.dumps({"photos": photos}).encode(), {}

def decode(body):
    return np.array(json.loads(body)["predictions"])
"""


@pytest.fixture(scope="module")
def photographs(tmp_path_factory):
    """A folder with `val.txt`, pictures of soft colours, and an adapter."""
    root = tmp_path_factory.mktemp("photographs")
    (root / "val").mkdir()
    random = np.random.default_rng(0)
    lines = []
    for i in range(6):
        soft = Image.fromarray(random.integers(0, 256, (7, 9, 3), np.uint8))
        soft = soft.resize((90 + 7 * i, 70), Image.Resampling.BICUBIC)
        soft.save(root / "val" / f"{i}.jpeg", quality=95)
        lines.append(f"{i}.jpeg {i * 1000}")
    (root / "val.txt").write_text("\n".join(lines))
    (root / "adapter.py").write_text(ADAPTER)
    return root


def evaluate(capsys, model, root, url):
    status = cli.main(
        ["evaluate", str(model), "--data", str(root), "--against", url]
        + ["--adapter", str(root / "adapter.py")]
    )
    return status, re.sub(r"\s+", " ", capsys.readouterr().out)


def test_the_same_preparation_agrees(faulty, models, photographs, capsys):
    status, printed = evaluate(capsys, models[0], photographs, f"{faulty}/photos/photo")
    assert status == 0, printed


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("channels", "swapped channels: the endpoint seems to swap the channels .BGR for RGB.:"),
        ("pixels_bgr", "swapped channels: .* .BGR for RGB. before mean and deviation are applied:"),
        ("squeezed", "another preprocessing: .* squeeze whole pictures into 16 × 16:"),
        ("unsmoothed_bgr", "another preprocessing: .* resize without smoothing .* swap .*: with"),
    ],
)
def test_another_preparation_is_named(fault, words, faulty, models, photographs, capsys):
    status, printed = evaluate(capsys, models[0], photographs, f"{faulty}/photos/{fault}")
    assert status == 1
    assert re.search("It looks like " + words, printed), printed
    assert "0.jpeg: " in printed


def test_samples_are_those_of_validation(photographs):
    spec = TensorSpec("picture", (-1, 3, 16, 16), "float32")
    last = TensorSpec("picture", (-1, 16, 16, 3), "float32")
    augment = Augment(crop_size=16, resize_short_size=18)
    data = ImageNet(photographs, "val", batch_size=6, augment=augment, num_classes=10**6)
    ((wanted, _),) = list(data)
    with open_samples(photographs, [spec]) as samples:
        assert samples.ids(0, 2) == ["0.jpeg", "1.jpeg"]
        found = samples.read(1, 4)["picture"]
        np.testing.assert_array_equal(found, wanted[1:4].numpy())
    with open_samples(photographs / "val.txt", [last]) as samples:
        found = samples.read(1, 4)["picture"]
        np.testing.assert_array_equal(found.transpose(0, 3, 1, 2), wanted[1:4].numpy())


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (TensorSpec("x", (-1, 10), "float32"), r"need a model with one input float32 \[any, 3"),
        (TensorSpec("x", (-1, 3, 16, 20), "float32"), "cut into squares"),
    ],
)
def test_models_for_something_else(spec, words, photographs):
    with (
        pytest.raises(EvaluationError, match=words),
        open_samples(photographs, [spec]),
    ):
        pass


def test_an_unreadable_photograph_is_named(photographs, tmp_path):
    (tmp_path / "val").mkdir()
    (tmp_path / "val" / "a.jpeg").write_bytes(b"nothing")
    (tmp_path / "val.txt").write_text("a.jpeg 0\n")
    spec = TensorSpec("picture", (-1, 3, 16, 16), "float32")
    with open_samples(tmp_path, [spec]) as samples, pytest.raises(EvaluationError) as raised:
        samples.read(0, 1)
    assert f"{tmp_path / 'val.txt'}:1: image" in str(raised.value)
