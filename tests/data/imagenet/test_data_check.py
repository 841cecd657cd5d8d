"""`fleetx data check` as a user runs it."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from generated_pictures import write_dataset

import warm_start
from waiting import LIMIT

ROOT = Path(__file__).resolve().parents[3]


def command(*arguments):
    return [sys.executable, "-m", "fleetx", "data", "check", *map(str, arguments)]


def run(*arguments):
    environment = warm_start.environment(COLUMNS="200")
    return subprocess.run(
        command(*arguments), env=environment, capture_output=True, text=True, timeout=LIMIT
    )


def row(output, name):
    """The cells of a line of the summary."""
    for line in output.splitlines():
        cells = [cell.strip() for cell in line.strip("│").split("│")]
        if cells[0] == name:
            return cells[1:]
    raise AssertionError(f"no line {name!r} in {output}")


def test_a_good_data_set(imagenet):
    done = run(imagenet, "--jobs", 2)
    assert done.returncode == 0, done.stderr
    assert row(done.stdout, "images listed") == ["23", "5"]
    assert row(done.stdout, "images read") == ["23", "5"]
    assert row(done.stdout, "classes") == ["12", "3"]
    assert row(done.stdout, "widths") == ["40 to 46, median 43", "40 to 44, median 42"]
    assert row(done.stdout, "problems") == ["0", "0"]


def test_everything_wrong_is_listed(own_imagenet):
    folder = own_imagenet / "train"
    cut = folder / "n00000000/n00000000_1.jpeg"
    cut.write_bytes(cut.read_bytes()[:300])
    (folder / "n00000001/n00000001_2.jpeg").unlink()
    damaged = bytearray((folder / "n00000001/n00000001_3.jpeg").read_bytes())
    damaged[-60:-20] = b"\xff\xd3" * 20
    (folder / "n00000001/n00000001_3.jpeg").write_bytes(damaged)
    with (own_imagenet / "train.txt").open("a") as file:
        file.write("x.jpeg\ny.jpeg 10\nn00000000/n00000000_0.jpeg 0\n")
    done = run(own_imagenet, "--classes", 10, "--list", "train.txt", "--jobs", 1)
    assert done.returncode == 1
    lines = {}
    for line in done.stdout.splitlines():
        if line.startswith(f"{own_imagenet / 'train.txt'}:"):
            number, text = line.removeprefix(f"{own_imagenet / 'train.txt'}:").split(":", 1)
            lines[int(number)] = text
    assert sorted(lines) == [2, 3, 4, 7, 8, 9]
    assert "_1.jpeg' cannot be used" in lines[2]
    assert "_2.jpeg' does not exist" in lines[3]
    assert "it is damaged" in lines[4]
    assert "no label after 'x.jpeg'" in lines[7]
    assert "label 10 is not in 0..9" in lines[8]
    assert "is on line 1 already" in lines[9]
    assert row(done.stdout, "problems") == ["6"]
    assert row(done.stdout, "unreadable image") == ["2"]
    assert row(done.stdout, "images read") == ["3"]


@pytest.mark.parametrize(
    ("prepare", "arguments", "message"),
    [
        (lambda root: None, (), "there is no train.txt or val.txt in"),
        (lambda root: None, ("--list", "mine.txt"), "there is no list"),
        (lambda root: (root / "train.txt").write_text(""), (), "the list names no image"),
    ],
)
def test_nothing_to_look_through(tmp_path, prepare, arguments, message):
    prepare(tmp_path)
    done = run(tmp_path, *arguments)
    assert done.returncode == 1
    assert message in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


def test_wrong_options(imagenet):
    done = run(imagenet, "--jobs", "0")
    assert done.returncode == 2
    assert "'0' is not a whole number of at least 1" in done.stderr


def test_the_interrupt_key_ends_it_cleanly(tmp_path):
    write_dataset(tmp_path, 2)
    # Reading a pipe without a writer blocks: the interrupt arrives during the read.
    os.mkfifo(tmp_path / "train" / "pipe.jpeg")
    lines = (tmp_path / "train.txt").read_text().splitlines()
    wrong = "missing.jpeg 0\nno-label\n"
    (tmp_path / "train.txt").write_text(wrong + "\n".join([*lines, "pipe.jpeg 1"]) + "\n")
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen(
        command(tmp_path, "--jobs", 1),
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        # A shell that started the tests in the background would have it ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    assert "no-label" in process.stdout.readline()
    os.killpg(process.pid, signal.SIGINT)
    # This waits for the end of everybody who could write here, so for the checking process too.
    output, errors = process.communicate(timeout=LIMIT)
    assert process.returncode == 130
    assert "interrupted; the figures cover what was checked" in output
    assert "Traceback" not in errors
