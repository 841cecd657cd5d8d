"""The demo's model, trained, served and evaluated against itself; and the report."""

import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser

import numpy as np
import pytest
from evaluated_servers import ROOT, started
from sklearn.datasets import load_digits

import warm_start
from fleetx import cli

pytestmark = pytest.mark.slow  # starts jobs or servers


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    """The demo's model, another version of it, and samples."""
    folder = tmp_path_factory.mktemp("demo")
    subprocess.run(
        [sys.executable, ROOT / "examples" / "digits" / "train.py"]
        + ["--epochs", "1", "--output", folder / "new"],
        check=True,
        capture_output=True,
        env=warm_start.environment(),
    )
    shutil.copytree(folder / "new", folder / "old")
    parameters = folder / "old" / "digits.pdiparams"
    content = bytearray(parameters.read_bytes())
    # The last weights of the last layer, which end the file.
    weights = np.frombuffer(content, "<f4", 64, len(content) - 256)
    weights += 0.25
    parameters.write_bytes(content)
    shutil.rmtree(folder / "old" / ".fleetx")  # the checksums of the new version
    pictures = (load_digits().images[:200] / 16.0).astype("float32")[:, None]
    np.save(folder / "pictures.npy", pictures)
    return folder


@pytest.fixture(scope="module")
def served(demo):
    """The address of `fleetx serve` with the new version."""
    with started("-m", "fleetx", "serve", demo / "new", "--port", "0") as url:
        yield url


class Page(HTMLParser):
    """Collects tags, texts and everything that would be loaded from elsewhere."""

    void = frozenset({"meta", "line", "rect", "br"})

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.texts, self.loaded = [], set(), [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.add(tag)
        self.loaded += [value for name, value in attributes if name in ("src", "href")]
        if tag not in ("meta",):
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.tags.add(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)


def evaluate(capsys, demo, model, url, *more):
    status = cli.main(
        ["evaluate", str(demo / model), "--data", str(demo / "pictures.npy")]
        + ["--against", url, *map(str, more)]
    )
    return status, re.sub(r"\s+", " ", capsys.readouterr().out)


@pytest.mark.parametrize("adapter", ["raw", "json"])
def test_demo_agrees_with_itself(adapter, demo, served, tmp_path, capsys):
    page = tmp_path / "report.html"
    status, printed = evaluate(capsys, demo, "new", served, "--adapter", adapter, "--report", page)
    assert status == 0, printed
    assert "0 of 200" in printed
    assert f"SAME: {served}/v1/predict answers as the saved model does." in printed
    found = Page(page.read_text())
    assert found.open == []
    assert found.loaded == []
    assert "script" not in found.tags
    assert "Same: all 200 samples agree within the tolerance." in found.texts


def test_another_version_is_caught(demo, served, tmp_path, capsys):
    page = tmp_path / "report.html"
    status, printed = evaluate(capsys, demo, "old", served, "--report", page)
    assert status == 1
    assert "It looks like another model version: the endpoint reports checksum sha256:" in printed
    text = page.read_text()
    found = Page(text)
    assert found.open == []
    assert any(each.startswith("Different: ") for each in found.texts)
    assert any("another model version" in each for each in found.texts)
    assert {"svg", "rect", "table"} <= found.tags
    assert text.count("<svg") == 2


def test_hostile_names_do_not_become_tags(demo, tmp_path, capsys, served):
    data = tmp_path / "s.npz"
    pictures = np.load(demo / "pictures.npy")[:3]
    np.savez(data, picture=pictures, sample_ids=np.array(["<script>alert(1)</script>"] * 3))
    page = tmp_path / "report.html"
    command = ["evaluate", str(demo / "old"), "--data", str(data), "--against", served]
    assert cli.main([*command, "--report", str(page)]) == 1
    capsys.readouterr()
    found = Page(page.read_text())
    assert "script" not in found.tags
    assert "<script>alert(1)</script>" in found.texts
