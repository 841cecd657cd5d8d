"""The examples run as a user starts them, and reach what they promise."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def run_example(script: str, *arguments: object) -> str:
    path = f"import sys; sys.path[:0] = [{str(ROOT / 'src')!r}]; sys.argv = sys.argv[1:]; "
    run = "import runpy; runpy.run_path(sys.argv[0], run_name='__main__')"
    command = [sys.executable, "-c", path + run, str(ROOT / "examples" / script)]
    done = subprocess.run([*command, *map(str, arguments)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_digits_learns_saves_loads_and_predicts(tmp_path):
    printed = run_example("digits/train.py", "--output", tmp_path)
    accuracy = float(re.search(r"never saw: ([0-9.]+)%", printed).group(1))
    assert accuracy > 97
    assert {path.name for path in tmp_path.iterdir()} == {"digits.pdmodel", "digits.pdiparams"}
    seen, label = re.search(r"sees a (\d).*label is (\d)", printed, re.DOTALL).groups()
    assert seen == label
