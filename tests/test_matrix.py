"""What `make matrix` does around the environments that it creates: versions, counting, tables."""

import importlib.util
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
REPORT = """<testsuites><testsuite>
<testcase classname="tests.a" name="test_one"/>
<testcase classname="tests.a" name="test_two"><failure>no</failure></testcase>
<testcase classname="tests.a" name="test_three"><error>no</error></testcase>
<testcase classname="tests.a" name="test_steps_of_srun"/>
<testcase classname="tests.a" name="test_two_jobs_of_mpirun"><skipped/></testcase>
</testsuite></testsuites>"""
ROWS = {
    "py311": {
        "date": "2024-01-02",
        "versions": "pinned",
        "python": "3.11.1",
        "torch": "2.4.0+cpu",
        "numpy": "1.26.0",
        "system": "Linux",
        "cpu": "a processor",
        "commands": {"fleetrun": True, "torchrun": False},
        "tests": {"passed": 3, "skipped": 2, "failed": ["a.b"], "launchers": ["srun (Slurm)"]},
    },
    "py314": {
        "date": "2024-01-02",
        "versions": "newest",
        "python": "3.14",
        "not run": "no Python 3.14 found",
    },
}


@pytest.fixture(scope="module")
def matrix():
    spec = importlib.util.spec_from_file_location("matrix", ROOT / "tests" / "matrix.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["matrix"] = module  # dataclasses look for their module
    try:
        spec.loader.exec_module(module)
        yield module
    finally:
        del sys.modules["matrix"]


@pytest.mark.parametrize("folder", [".", "compat"])
def test_every_dependency_has_a_lower_bound(matrix, folder):
    project = tomllib.loads((ROOT / folder / "pyproject.toml").read_text())["project"]
    listed = [item for item in matrix.requirements(project) if not item.startswith("fleetx")]
    pins = [matrix.lowest(item) for item in listed]
    assert len(pins) == len(listed)
    assert folder == "compat" or "torch==2.4" in pins


def test_lower_bounds(matrix):
    assert matrix.lowest("fsspec[http]>=2024.2") == "fsspec==2024.2"
    with pytest.raises(ValueError, match="'rich' in pyproject.toml has no lower bound"):
        matrix.lowest("rich")


def test_tests_of_the_matrix_exist(matrix):
    names = matrix.TESTS + matrix.PINNED_TESTS
    assert [name for name in names if not (ROOT / name.split("::")[0]).exists()] == []


def test_make_test_runs_all_launchers(matrix):
    """As the page says of those that the matrix has not run."""
    texts = [path.read_text() for path in (ROOT / "tests" / "launch").glob("test_*.py")]
    names = re.findall(r"^def (test_\w+)", "\n".join(texts), re.MULTILINE)
    found = {text for word, text in matrix.LAUNCHER_TESTS.items() for n in names if word in n}
    examples = (ROOT / "tests" / "test_examples.py").read_text()
    found |= {name for name in ("fleetrun", "torchrun") if f'"{name}"' in examples}
    assert found == set(matrix.report.LAUNCHERS)


def test_a_python_that_is_not_there(matrix, tmp_path):
    here = f"{sys.version_info.major}.{sys.version_info.minor}"
    assert matrix.find_python(here, {here: sys.executable}) == sys.executable
    with pytest.raises(matrix.NotHereError, match=r"no Python 2\.0 found"):
        matrix.find_python("2.0", {"2.0": sys.executable})


def test_counting(matrix, tmp_path):
    (tmp_path / "tests.xml").write_text(REPORT)
    assert matrix.count(tmp_path / "tests.xml") == {
        "passed": 2,
        "skipped": 1,
        "failed": ["tests.a.test_two", "tests.a.test_three"],
        "launchers": ["srun (Slurm)"],
    }


def test_tables(matrix):
    shown = matrix.report.matrix_table(ROWS)
    launchers = "| fleetrun, srun (Slurm) | torchrun, mpirun (Open MPI) | Kubernetes |"
    assert f"| started by {launchers}" in shown
    versions = "| 3.11.1 | 2.4.0 | 1.26.0 | `constraints.txt` |"
    assert f"{versions} 1 passed, failed: torchrun | 3 passed, 2 skipped, 1 failed |" in shown
    assert "| 3.14 |  |  | newest | not run: no Python 3.14 found |" in shown
    assert "未运行: 本机没有 Python 3.14" in matrix.report.matrix_table_zh(ROWS)
    assert matrix.failures(ROWS["py311"]) == ["torchrun", "a.b"]
    assert matrix.failures(ROWS["py314"]) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["py99"], "there is no row 'py99'; the rows are: py311"),
        (["--cache", str(ROOT / "build")], "is inside the checkout"),
    ],
)
def test_refusals(arguments, message):
    command = [sys.executable, ROOT / "tests" / "matrix.py", *arguments]
    variables = {**os.environ, "PYTHONPATH": str(ROOT / "bench")}
    done = subprocess.run(command, env=variables, capture_output=True, text=True)
    assert done.returncode == 2
    assert message in done.stderr
