"""The programs of the static quick start: alone, and with the workers that `--gpus` asks for."""

import pytest
from seed_programs import EPOCH, EXAMPLES, run

pytestmark = pytest.mark.slow  # starts jobs or servers

FOLDER = EXAMPLES / "001_static_quick_start"


def test_program_of_one_worker(tmp_path):
    printed = run(tmp_path, "python", FOLDER / "train.py", "--epochs", 1, "--pictures", 32)
    assert EPOCH.findall(printed) == [("0", "0"), ("0", "1")]


def test_command_with_two_cards(tmp_path):
    arguments = ("--epochs", 2, "--pictures", 64)
    printed = run(tmp_path, "sh", FOLDER / "two_cards.sh", *arguments)
    for line in ("Configuration Arguments", "gpus: 0,1\n", "PADDLE_TRAINERS_NUM", "log_dir: log"):
        assert line in printed
    for rank in range(2):
        text = (tmp_path / "log" / f"workerlog.{rank}").read_text()
        assert EPOCH.findall(text) == [("0", "0"), ("0", "1"), ("1", "0"), ("1", "1")]
    assert "Find all_reduce operators: 62." in (tmp_path / "log" / "workerlog.0").read_text()


def test_command_with_more_cards(tmp_path):
    printed = run(
        tmp_path, "sh", FOLDER / "eight_cards.sh", "--epochs", 1, "--pictures", 48, GPUS="0,1,2"
    )
    assert EPOCH.findall(printed) == [("0", "0")]
    assert (tmp_path / "log" / "workerlog.2").exists()
