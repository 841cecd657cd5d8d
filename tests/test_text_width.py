"""What is printed fits into a terminal of 80 columns."""

import os
import pty
import subprocess
import sys
import termios

import pytest

from fleetx import fleet
from fleetx.fleet.collective.explain import Explanation
from fleetx.launch.banner import environment_table
from fleetx.step.stages import Stage
from fleetx.step.technique import Row
from fleetx.step.text_table import WIDTH
from fleetx.techniques.auto_candidates import Candidate
from fleetx.techniques.auto_trials import Trial, table

LONG = "checkpoints encoder.layers.0, encoder.layers.1, encoder.layers.2, a_name_without_any_space"
VARIABLES = {
    "PADDLE_TRAINER_ENDPOINTS": ",".join(f"10.0.0.{i}:6170" for i in range(9)),
    "PADDLE_PSERVERS_IP_PORT_LIST": "10.0.0.1:6170",
}


def check(text):
    assert max(map(len, text.splitlines())) <= WIDTH


def explanation():
    return Explanation(
        (
            Row(stage=Stage.MEMORY, technique="recompute", settings=LONG, memory=None),
            Row(stage=Stage.GRAD_SYNC, technique="all-reduce", bytes_sent=123.4e6, memory=-999.9e6),
        ),
        workers=64,
    )


def test_an_explanation_is_folded_and_says_everything():
    text = str(explanation())
    check(text)
    lines = text.splitlines()
    # The third column, put together again.
    settings = [line.split("│")[3].strip() for line in lines if line.count("│") == 6]
    assert "".join("".join(settings[1:]).split()) == "".join(LONG.split())
    for part in ("64 worker(s)", "sent/step", "123.4 MB", "-999.9 MB", "by activations"):
        assert part in text


def test_an_explanation_is_the_same_on_any_terminal(monkeypatch):
    before = str(explanation())
    monkeypatch.setenv("COLUMNS", "40")
    assert str(explanation()) == before


def test_what_auto_has_tried():
    name = "amp + recompute + gradient_merge (k_steps 4) + localsgd (k_steps 16)"
    trials = [
        Trial(candidate=Candidate("plain", {}), samples=32, seconds=0.1, bytes_sent=1e6),
        Trial(candidate=Candidate(name, {}), samples=32, bytes_sent=1e9, note=LONG),
    ]
    text = table(trials, trials[0])
    check(text)
    for part in ("320.0", "1000.00", "taken"):
        assert part in text


def test_a_strategy():
    strategy = fleet.DistributedStrategy()
    strategy.amp = True
    check(str(strategy))


@pytest.mark.parametrize(
    ("width", "expected"), [(None, 93), (200, 93), (93, 93), (92, 83), (80, 80)]
)
def test_the_environment_of_a_worker(width, expected):
    lines = environment_table(VARIABLES, VARIABLES, width).splitlines()
    assert {len(line) for line in lines} == {expected}
    assert "... " in lines[3]
    assert lines[3].rstrip("| ").endswith("10.0.0.8:6170")


def test_fleetrun_asks_the_terminal_for_its_width(tmp_path):
    (tmp_path / "train.py").write_text("")
    ours, theirs = pty.openpty()
    try:
        termios.tcsetwinsize(theirs, (24, 80))
        subprocess.run(
            [sys.executable, "-m", "fleetx.launch", "train.py"],
            cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=theirs, check=True,
        )  # fmt: skip
        said = os.read(ours, 1 << 16).decode()
    finally:
        os.close(ours)
        os.close(theirs)
    boxed = [line for line in said.splitlines() if line.strip().startswith(("|", "+"))]
    assert boxed
    assert {len(line) for line in boxed} == {80}
