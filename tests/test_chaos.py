"""The summary of `make chaos`."""

import re
import subprocess
import sys
from pathlib import Path

from waiting import LIMIT

MAKEFILE = """
chaos-good:
	@echo first; echo "42 kills, equal bit for bit"; echo
chaos-bad:
	@echo half of it; exit 3
chaos-silent:
	@true
"""


def chaos(folder: Path, *parts: str) -> tuple[int, list[str]]:
    (folder / "Makefile").write_text(MAKEFILE)
    command = [sys.executable, str(Path(__file__).with_name("chaos.py")), "make", *parts]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=LIMIT)
    return done.returncode, re.sub(r"after \d+ s", "after 1 s", done.stdout).splitlines()


def test_a_part_that_fails_is_named_and_does_not_stop_the_others(tmp_path):
    code, lines = chaos(tmp_path, "chaos-bad", "chaos-good", "chaos-silent")
    assert code == 1
    assert lines[:2] == ["half of it", "first"]
    assert lines[-4:] == [
        "chaos: 2 of 3 parts held",
        "chaos-bad: FAILED with exit code 2 after 1 s: half of it",
        "chaos-good: held after 1 s: 42 kills, equal bit for bit",
        "chaos-silent: held after 1 s: (it printed nothing)",
    ]


def test_the_exit_code_is_zero_if_all_parts_hold(tmp_path):
    code, lines = chaos(tmp_path, "chaos-good")
    assert code == 0
    assert lines[-2] == "chaos: 1 of 1 parts held"


def test_every_part_of_the_makefile_runs_files_that_are_there():
    root = Path(__file__).resolve().parents[1]
    text = (root / "Makefile").read_text()
    parts = re.search(r"^CHAOS_PARTS := ((?:.*\\\n)*.*)", text, re.MULTILINE)[1]
    names = parts.replace("\\\n", " ").split()
    assert set(names) == set(re.findall(r"^(chaos-\w+):", text, re.MULTILINE))
    for name in names:
        recipe = re.search(rf"^{name}:.*\n((?:\t.*\n)+)", text, re.MULTILINE)[1]
        files = re.findall(r"tests/\S+", recipe)
        assert files, name
        assert all((root / file).exists() for file in files), name
