"""The command `fleetx`, on the files that real Paddles wrote and on files that are none."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import fleetx
from fleetx import cli
from fleetx.kernels import compiled
from fleetx.ps.wire.security import JobKeys

ROOT = Path(__file__).resolve().parent.parent
GOLDEN = Path(__file__).parent / "checkpoint" / "golden"


def test_info_names_versions_and_devices(capsys):
    assert cli.main(["info"]) == 0
    shown = capsys.readouterr().out
    for word in (fleetx.__version__, "torch", "protobuf", "threads", "GPU", "gloo"):
        assert word in shown


def test_info_names_compiled_modules(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    assert cli.main(["info"]) == 0
    shown = capsys.readouterr().out
    for module in compiled.MODULES:
        reason = compiled.why_missing(module)
        state = f"in Python, slower: {reason}" if reason else "compiled"
        assert f"{state} ({module})" in shown


@pytest.mark.parametrize(
    "model",
    [
        "paddle26/inference.pdmodel",  # the file
        "paddle26/inference",  # the prefix it was saved under
        "paddle26",  # the folder
        "paddle18",
        "paddle18/__model__",
    ],
)
def test_show_prints_a_saved_program(model, capsys):
    assert cli.main(["show", str(GOLDEN / model)]) == 0
    shown = capsys.readouterr().out
    assert "= mul(inputs={X=['x'], Y=['w']}" in shown
    assert "4 ops, 1 saved variables with 12 numbers; feeds x;" in shown


def test_show_says_what_is_missing(tmp_path, capsys):
    assert cli.main(["show", str(tmp_path / "nowhere")]) == 1
    assert "there is no program in" in capsys.readouterr().err


def test_show_refuses_a_file_of_another_kind(capsys):
    assert cli.main(["show", str(GOLDEN / "paddle26" / "inference.pdiparams")]) == 1
    assert "inference.pdiparams" in capsys.readouterr().err


@pytest.mark.slow
def test_module_runs_as_a_command():
    done = subprocess.run(
        [sys.executable, "-m", "fleetx", "--version"],
        cwd=ROOT / "src",
        check=True,
        capture_output=True,
        text=True,
    )
    assert done.stdout.strip() == f"fleetx {fleetx.__version__}"


def test_wrong_command_lists_the_right_ones(capsys):
    with pytest.raises(SystemExit):
        cli.main(["nothing"])
    assert "info" in capsys.readouterr().err


def test_keys_are_made_once(tmp_path, capsys):
    path = tmp_path / "keys.json"
    assert cli.main(["ps", "keys", str(path)]) == 0
    before = path.read_text()
    assert JobKeys.from_dict(json.loads(before)).server_secret
    assert cli.main(["ps", "keys", str(path)]) == 1
    assert "already exists, and keys are not overwritten" in capsys.readouterr().err
    assert path.read_text() == before
    assert cli.main(["ps", "keys", str(tmp_path / "missing" / "keys.json")]) == 1
    said = capsys.readouterr().err
    assert "the keys cannot be written to" in said
    assert said.endswith("No such file or directory.\n")
