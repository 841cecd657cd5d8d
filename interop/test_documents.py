"""The documents' programs for one machine, word by word, here and on the Paddle they are for.

The text comes from the documents when the test runs; it is no part of this project. What the
programs import from the files around them (a network, a reader) is in scripts/document_parts.
"""

import re
import shutil
import textwrap
from pathlib import Path

import numpy as np
import pytest
from engines import HERE, Engine, ours

from conftest import Comparison
from fleetx.checkpoint.paddle_tensor import read_tensors

SEEDS = HERE.parent.parent / "shared" / "seeds"
NUMBER = re.compile(r"-?\d+\.\d+(?:e[-+]\d+)?")


def programs(number: str) -> list[str]:
    """Return the Python programs of a document; skip where the document is missing."""
    found = sorted(SEEDS.glob(f"{number}_*.txt"))
    if not found:
        pytest.skip(f"document {number} is missing: put {number}_*.txt into {SEEDS}")
    text = found[0].read_text(encoding="utf-8")
    fenced = re.findall(r"^```python\n(.*?)^```", text, re.S | re.M)
    indented = re.findall(r"^ *\.\. code-block:: py\n\n((?:(?: +.*)?\n)+)", text, re.M)
    return [textwrap.dedent(each) for each in fenced + indented]


def the_one(number: str, *words: str) -> str:
    """Return the first program with these words that has nothing to do with fleet."""
    for each in programs(number):
        if all(word in each for word in words) and "fleet" not in each:
            return each
    raise AssertionError(f"document {number} has no program with {', '.join(words)}.")


def run_both(
    paddle: Engine, folder: Path, text: str, *arguments: object, files: Path | None = None
) -> list[tuple[str, list[np.ndarray]]]:
    """Run a program on both engines, each in a folder of its own; return prints and fetches."""
    results = []
    for engine in (paddle, ours(paddle.api)):
        work = folder / engine.name
        work.mkdir()
        if files is not None:
            shutil.copytree(files, work / files.name)
        (work / "program.py").write_text(text, encoding="utf-8")
        place = "cpu" if engine is paddle else "as written"
        printed = engine.run(
            "run_document.py", place, "program.py", "record.npz", *arguments, folder=work
        )
        with np.load(work / "record.npz") as record:
            results.append((printed, [record[key] for key in sorted(record)]))
    return results


def compare_lines(compare: Comparison, what: str, found: str, wanted: str) -> int:
    """Compare what was printed, line by line; numbers as numbers. Return how many lines."""
    lines, wanted_lines = found.splitlines(), wanted.splitlines()
    assert len(lines) == len(wanted_lines)
    for line, other in zip(lines, wanted_lines, strict=True):
        assert NUMBER.sub("#", line) == NUMBER.sub("#", other)
    mine, theirs = (np.array(NUMBER.findall(text), "float64") for text in (found, wanted))
    if theirs.size:
        compare.check(what, mine, theirs)
    return len(lines)


@pytest.mark.timeout(1300)
@pytest.mark.parametrize("paddle", ["1.8.5"], indirect=True)
def test_first_program(paddle: Engine, compare: Comparison, tmp_path: Path) -> None:
    text = the_one("000", "def gen_data", "fluid.optimizer.SGD")
    # The program reads and writes ./pretrained_model if it is there. A first run of real Paddle
    # makes the parameters that both start from.
    start = tmp_path / "start"
    (start / "pretrained_model").mkdir(parents=True)
    (start / "program.py").write_text(text, encoding="utf-8")
    paddle.run("run_document.py", "cpu", "program.py", "record.npz", folder=start)
    files = start / "pretrained_model"
    assert (files / "fc_0.w_0").exists()
    (wanted, _), (found, _) = run_both(paddle, tmp_path, text, files=files)
    lines = compare_lines(compare, "collective how-to, train.py: printed", found, wanted)
    assert lines > 1001
    assert "var: fc_0.w_0 found" in found
    for name in sorted(path.name for path in files.iterdir()):
        theirs, mine = (
            read_tensors(tmp_path / engine / files.name / name, [name])[name].array
            for engine in (paddle.name, "fleetx")
        )
        compare.check("collective how-to, train.py: saved", mine, theirs)


@pytest.mark.timeout(1300)
@pytest.mark.parametrize("paddle", ["1.8.5"], indirect=True)
def test_offline_evaluation(paddle: Engine, compare: Comparison, tmp_path: Path) -> None:
    text = the_one("000", "def evaluate", "py_reader")
    arguments = ["--batch_size", 4, "--class_dim", 10, "--image_shape", "3,32,32"]
    (wanted, vectors), (found, mine) = run_both(paddle, tmp_path, text, *arguments)
    assert found == wanted == "batch: 0\n"
    assert [each.shape for each in mine] == [(4, 10), (4, 10), (2, 10)]
    for one, other in zip(mine, vectors, strict=True):
        compare.check("collective how-to, evaluation: vectors", one, other)


@pytest.mark.timeout(1300)
@pytest.mark.parametrize("paddle", ["2.6.2"], indirect=True)
def test_quick_start(paddle: Engine, compare: Comparison, tmp_path: Path) -> None:
    text = the_one("001", "def train_resnet", "Executor")
    text = f"from quick_start import *\n{text}\ntrain_resnet()\n"
    (wanted, _), (found, values) = run_both(paddle, tmp_path, text)
    lines = compare_lines(compare, "static quick start, one card: printed", found, wanted)
    assert lines == 20
    losses = [float(each.reshape(())) for each in values[::3]]
    assert losses[-1] < losses[0]
