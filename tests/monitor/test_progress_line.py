"""The progress line on a terminal, in a log, and as text."""

import io
import os
import pty
import re
import subprocess
import sys

import pytest
from monitored_jobs import environment
from rich.console import Console

from fleetx.monitor.progress import Progress, duration
from fleetx.monitor.record import StepRecord

LOOP = """
from fleetx import monitor
for _ in monitor.watch([[1]] * 5, epochs=2):
    monitor.note(loss=0.5)
print("done")
"""


def on_terminal() -> str:
    """Run the loop on a pseudo terminal and return what it wrote there."""
    own, other = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", LOOP],
        env=environment(COLUMNS="120", TERM="xterm-256color"),
        stdin=other,
        stdout=other,
        stderr=other,
    )
    os.close(other)
    parts = []
    while True:
        try:
            part = os.read(own, 4096)
        except OSError:  # on Linux: the terminal has no writer any more
            break
        if not part:
            break
        parts.append(part)
    os.close(own)
    assert process.wait() == 0
    return b"".join(parts).decode()


def test_on_a_terminal_one_line_is_redrawn():
    text = on_terminal()
    assert "\x1b[2K" in text
    plain = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", text)
    last = plain.split("\r")[-3:]
    assert any(re.search(r"━{24}  epoch 2/2  step 10/10  loss 0.5000  comm 0%", s) for s in last)
    assert plain.rstrip().endswith("done")
    assert text.index("\x1b[?25h") < text.index("done")  # the cursor is back


def test_a_narrow_terminal_has_no_bar():
    screens = []
    for width in (60, 120):
        screen = io.StringIO()
        progress = Progress(console=Console(file=screen, force_terminal=True, width=width))
        progress.epoch_began(2)
        progress.take(StepRecord(1, 1, 0.0, 2.0, 0.1, 0.5, 8, 0.125))
        progress.close()
        screens.append(screen.getvalue())
    assert ["━" in screen for screen in screens] == [False, True]


@pytest.mark.slow
def test_in_a_log_there_are_plain_lines():
    done = subprocess.run(
        [sys.executable, "-c", LOOP], env=environment(), capture_output=True, text=True
    )
    lines = done.stderr.splitlines()
    assert [re.search(r"step (\d+)/10", line)[1] for line in lines] == ["1", "5", "10"]
    assert done.stdout == "done\n"


def test_the_words_of_a_line():
    progress = Progress(workers=4, console=Console(file=io.StringIO()))
    progress.epochs, progress.steps_per_epoch = 2, 10
    for step in (1, 2, 3):
        progress.take(StepRecord(step, 1, 0.0, 2.0 if step > 1 else 60.0, 0.1, 0.5, 8, 0.125))
    assert progress.parts() == ["loss 0.1250", "16 samples/s", "communication 25%", "0:34 left"]
    progress.note({"rate": 0.001, "phase": "warm"})
    assert progress.parts(short=True)[2:] == ["comm 25%", "0:34 left", "rate 0.001", "phase warm"]


@pytest.mark.parametrize(("seconds", "text"), [(0.4, "0:00"), (75, "1:15"), (7325, "2:02:05")])
def test_durations(seconds, text):
    assert duration(seconds) == text
