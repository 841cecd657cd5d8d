"""Data sets of text give the samples that real Paddle gives, from the same files."""

import json
from pathlib import Path

import pytest
from engines import Engine, ours, real


def samples(engine: Engine, folder: Path) -> dict:
    """Return what an engine reads from tiny files that it writes into a folder."""
    folder.mkdir()
    printed = engine.run("text_samples.py", folder)
    return json.loads(printed[printed.index("FOUND ") + 6 :])


def test_same_samples(tmp_path: Path) -> None:
    paddle = real("2.6.2")
    if paddle is None:
        pytest.skip("PADDLE262 does not name a Python with Paddle 2.6.2; use make interop")
    here, there = samples(ours("static"), tmp_path / "a"), samples(paddle, tmp_path / "b")
    assert len(here) > 15
    for name, wanted in there.items():
        assert here[name] == wanted, name
