"""Run FleetX with other versions of Python, PyTorch and NumPy than the pinned ones: `make matrix`.

    PYTHONPATH=bench python tests/matrix.py [ROW ...] [--cache DIR] [--keep] [--python 3.12=PATH]
        [--tests "..."]

Every row gets a copy of the checkout and an environment in the cache folder, outside the checkout.
FleetX is installed from the copy; the README's commands run with what was installed, then a chosen
part of the tests. Results go to tests/matrix.json next to those of rows that do not run this time,
and from there into the tables of the READMEs; a row that cannot be set up is listed with the
reason. pip's own settings decide where wheels come from: an index of PyTorch's CPU builds in
PIP_EXTRA_INDEX_URL makes environments much smaller.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

# What measures the machine and what writes tables into pages is shared with the benchmarks.
import report
from record import processor

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "tests" / "matrix.json"
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "fleetx-matrix"
# A build of PyTorch with CUDA and the libraries it brings, while pip unpacks it.
NEEDED_GB = 14
# For one installation or one run of the tests; nothing waits this long unless it hangs.
LIMIT_SECONDS = 3600


@dataclass(frozen=True)
class Row:
    """One environment: a Python and what decides the versions in it."""

    python: str
    pins: tuple[str, ...] = ()
    """Requirements that hold beside pyproject.toml's, as `torch==2.6.0`."""
    source: str = "newest"
    """`newest` on the registry, `pinned` in constraints.txt, or `lowest` of pyproject.toml."""


ROWS = {
    "py311": Row("3.11", source="pinned"),
    "py312": Row("3.12"),
    "py313": Row("3.13"),
    "py314": Row("3.14"),
    "oldest": Row("3.11", source="lowest"),
    "torch24": Row("3.12", pins=("torch==2.4.1",)),
    "torch26": Row("3.13", pins=("torch==2.6.0",)),
    "numpy1": Row("3.12", pins=("numpy==1.26.4",)),
}

# What uses most of PyTorch's and NumPy's interfaces, and every optional dependency once, in about
# three minutes on two cores. All rows run these.
TESTS = (
    "tests/test_docs.py::test_both_sides_of_a_comparison_train_alike[accelerate]",
    "tests/test_gpu_code.py",
    "tests/test_torch_names.py",
    "tests/applications/text/test_text_models.py",
    "tests/checkpoint",
    "tests/comm/test_leaving.py",
    "tests/compat/test_documents_programs.py",
    "tests/data/test_bert_text.py",
    "tests/data/test_transforms.py",
    "tests/data/imagenet/test_imagenet_reader.py",
    "tests/fleet/collective/test_equal_training.py",
    "tests/fleet/servers/test_server_models.py",
    "tests/integrations",
    "tests/kernels/test_index.py",
    "tests/kernels/test_rows.py",
    "tests/monitor/test_measured_job.py",
    "tests/static/metrics/test_metrics.py",
    "tests/static/ops/test_optimizer_ops.py",
    "tests/ps/tables/test_sparse_table.py",
    "tests/ps/tables/test_table_files.py",
    "tests/ps/wire/test_wire.py",
    "tests/serving/test_serve.py",
    "tests/serving/test_served_model.py",
    "tests/static/run/test_executor.py",
    "tests/static/lowering/test_lowering.py",
    "tests/static/mixed_precision/test_mixed_precision.py",
    "tests/techniques/test_amp.py",
    "tests/techniques/test_composition.py",
    "tests/utils/test_downloader.py",
)
# Other launchers do not depend on the versions: only the row with pinned ones runs these.
PINNED_TESTS = ("tests/test_cli.py", "tests/launch/test_other_launchers.py")
# Tests that stand for a launcher, by a part of their names.
LAUNCHER_TESTS = {"mpirun": "mpirun (Open MPI)", "srun": "srun (Slurm)"}


class NotHereError(Exception):
    """The row cannot be set up on this machine; the text says why."""


def requirements(project: dict[str, Any]) -> list[str]:
    """Return all requirements of a pyproject.toml on other distributions, extras included."""
    listed = list(project["dependencies"])
    for extra in project.get("optional-dependencies", {}).values():
        listed += extra
    return sorted({item for item in listed if not item.startswith("fleetx")})


def lowest(requirement: str) -> str:
    """Return the requirement for exactly the lower bound: `x[y]>=1.2` becomes `x==1.2`."""
    match = re.fullmatch(r"([\w.-]+)(?:\[[\w,]+\])?>=([\w.]+)", requirement)
    if match is None:
        raise ValueError(f"{requirement!r} in pyproject.toml has no lower bound; write NAME>=X.")
    return f"{match[1]}=={match[2]}"


def constraints(row: Row) -> list[str]:
    """Return the lines of the constraints file that a row is installed with."""
    lines = list(row.pins)
    if row.source == "pinned":
        lines += (ROOT / "constraints.txt").read_text().splitlines()
    elif row.source == "lowest":
        files = [ROOT / "pyproject.toml", ROOT / "compat" / "pyproject.toml"]
        projects = [tomllib.loads(file.read_text())["project"] for file in files]
        lines += sorted({lowest(item) for each in projects for item in requirements(each)})
    return lines


def tests_of(row: Row) -> tuple[str, ...]:
    """Return the tests that a row runs."""
    return TESTS + PINNED_TESTS if row.source == "pinned" else TESTS


def candidates(version: str) -> Iterator[str]:
    """List the places where a Python of this version may be: PATH, then pyenv's folders."""
    found = shutil.which(f"python{version}")
    if found:
        yield found
    home = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    yield from map(str, sorted(home.glob(f"versions/{version}.*/bin/python"), reverse=True))


def find_python(version: str, named: dict[str, str]) -> str:
    """Return a Python of this version that can create environments."""
    check = f"import sys, venv, ensurepip; sys.exit('%d.%d' % sys.version_info[:2] != {version!r})"
    for path in [named[version]] if version in named else candidates(version):
        if subprocess.run([path, "-c", check], capture_output=True).returncode == 0:
            return path
    raise NotHereError(f"no Python {version} found")


def copy_checkout(target: Path) -> None:
    """Copy what git knows and what it would take up: builds must not touch the checkout."""
    shutil.rmtree(target, ignore_errors=True)
    listing = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listing, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    for name in filter(None, names.split("\0")):
        if (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name)


class Environment:
    """The folder of a row: an environment, a copy of the checkout, a place to run in, logs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.bin = folder / "venv" / "bin"
        self.copy = folder / "checkout"
        self.place = folder / "run"
        self.logs = folder / "log"

    def run(self, name: str, command: Sequence[str | Path], where: Path) -> bool:
        """Run a command with the row's programs first in PATH; return whether it succeeded."""
        variables = {k: v for k, v in os.environ.items() if k not in {"PYTHONPATH", "VIRTUAL_ENV"}}
        variables |= {"PATH": f"{self.bin}{os.pathsep}{variables['PATH']}", "OMP_NUM_THREADS": "1"}
        self.logs.mkdir(parents=True, exist_ok=True)
        with self.log(name).open("w") as log:
            try:
                done = subprocess.run(
                    list(map(str, command)),
                    cwd=where,
                    env=variables,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    timeout=LIMIT_SECONDS,
                )
            except subprocess.TimeoutExpired:
                log.write(f"\nended after {LIMIT_SECONDS} seconds")
                return False
        return done.returncode == 0

    def log(self, name: str) -> Path:
        """Return the file that holds what a command wrote."""
        return self.logs / f"{name}.log"

    def install(self, row: Row, python: str) -> None:
        """Create the environment, unless a kept one was made from the same versions."""
        wanted = json.dumps([python, constraints(row)])
        ready = self.folder / "ready.json"
        if not (ready.exists() and ready.read_text() == wanted):
            free = shutil.disk_usage(self.folder).free / 1e9
            if free < NEEDED_GB:
                raise NotHereError(f"{free:.0f} GB free, and a row may need {NEEDED_GB}")
            shutil.rmtree(self.folder / "venv", ignore_errors=True)
            subprocess.run([python, "-m", "venv", self.folder / "venv"], check=True)
        pins = self.folder / "constraints.txt"
        pins.write_text("\n".join(constraints(row)) + "\n")
        # Byte code is made where it is needed: most of PyTorch is never imported.
        pip = [self.bin / "python", "-m", "pip", "install", "--no-compile", "-c", pins]
        extras = "[dev,bench]" if row.source == "lowest" else "[dev]"
        wheels = ["--prefer-binary", f"{self.copy}{extras}", self.copy / "compat"]
        for name, wanted_wheels in {
            "setuptools": ["setuptools>=77"],
            # Without isolation the lower bound of setuptools is used too.
            "install": ["--no-build-isolation", *wheels],
        }.items():
            if not self.run(f"pip-{name}", [*pip, *wanted_wheels], self.folder):
                text = self.log(f"pip-{name}").read_text()
                missing = re.findall(r"No matching distribution found for (\S+)", text)
                if missing:
                    raise NotHereError(f"no wheel of {missing[-1]} for Python {row.python}")
                raise RuntimeError(f"installation failed: {_last_line(text)}")
        ready.write_text(wanted)
        # The tests take the modules of the copy, and so the compiled ones are needed there.
        build = [self.bin / "python", "setup.py", "build_ext", "--inplace"]
        if not self.run("build_ext", build, self.copy):
            raise RuntimeError(f"compiling failed: {_last_line(self.log('build_ext').read_text())}")

    def versions(self) -> dict[str, str]:
        """Return the versions that were installed."""
        code = (
            "import json, platform, numpy, torch; print(json.dumps({'python': "
            "platform.python_version(), 'torch': torch.__version__, 'numpy': numpy.__version__}))"
        )
        done = subprocess.run(
            [self.bin / "python", "-c", code], check=True, capture_output=True, text=True
        )
        versions: dict[str, str] = json.loads(done.stdout)
        return versions

    def commands(self) -> dict[str, bool]:
        """Run the README's commands in a folder of their own, with what was installed."""
        shutil.rmtree(self.place, ignore_errors=True)
        shutil.copytree(self.copy / "examples", self.place)
        readme = (self.copy / "README.md").read_text()
        blocks = re.findall(r"^```python\n(.*?)^```", readme, re.DOTALL | re.MULTILINE)
        (self.place / "program.py").write_text("\n".join(blocks))
        train = self.place / "pytorch" / "train_fleet.py"
        lines: dict[str, list[str | Path]] = {
            "fleetx info": ["fleetx", "info"],
            "python": ["python", train],
            "fleetrun": ["fleetrun", "--nproc_per_node", "2", train],
            "torchrun": ["torchrun", "--nproc_per_node", "2", train],
            "program": ["python", "program.py"],
            "demo": ["fleetrun", "--nproc_per_node", "2", self.place / "digits" / "train.py"],
            "servers": ["fleetrun", "--server_num", "1", "--worker_num", "2", "ctr/train.py"],
        }
        return {
            name: self.run(name.replace(" ", "-"), [self.bin / line[0], *line[1:]], self.place)
            for name, line in lines.items()
        }

    def tests(self, chosen: Sequence[str]) -> dict[str, Any]:
        """Run the tests; return how many passed, and the names of those that did not."""
        report = self.logs / "tests.xml"
        report.unlink(missing_ok=True)
        # The limit of a single test is for a machine that does nothing else.
        options = ["--timeout", str(LIMIT_SECONDS // 3), f"--junitxml={report}"]
        spread = ["-n", "2", "--dist", "worksteal"]
        line = [self.bin / "python", "-m", "pytest", *spread, *options, *chosen]
        self.run("tests", line, self.copy)
        if not report.exists():
            last = _last_line(self.log("tests").read_text())
            return {"passed": 0, "skipped": 0, "failed": [f"pytest: {last}"], "launchers": []}
        return count(report)


def count(report: Path) -> dict[str, Any]:
    """Read pytest's report: how many passed and were skipped, who failed, who launched."""
    found: dict[str, Any] = {"passed": 0, "skipped": 0, "failed": [], "launchers": []}
    for case in ElementTree.parse(report).iter("testcase"):
        name = f"{case.get('classname')}.{case.get('name')}"
        if case.find("failure") is not None or case.find("error") is not None:
            found["failed"].append(name)
        elif case.find("skipped") is not None:
            found["skipped"] += 1
        else:
            found["passed"] += 1
            found["launchers"] += [
                v for k, v in LAUNCHER_TESTS.items() if k in case.get("name", "")
            ]
    found["launchers"] = sorted(set(found["launchers"]))
    return found


def _last_line(text: str) -> str:
    return text.strip().splitlines()[-1] if text.strip() else "it wrote nothing"


def run_row(name: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """Set up and run one row; return its record."""
    row = ROWS[name]
    environment = Environment(arguments.cache / name)
    environment.folder.mkdir(parents=True, exist_ok=True)
    record: dict[str, Any] = {
        "date": time.strftime("%Y-%m-%d"),
        "versions": "chosen" if row.pins else row.source,
        "python": row.python,
    }
    try:
        python = find_python(row.python, arguments.python)
        copy_checkout(environment.copy)
        environment.install(row, python)
        record |= environment.versions()
        record["system"] = platform.system()
        record["cpu"] = processor()
        record["commands"] = environment.commands()
        started = time.monotonic()
        record["tests"] = environment.tests(arguments.tests or tests_of(row))
        record["tests"]["seconds"] = round(time.monotonic() - started)
    except NotHereError as error:
        record["not run"] = str(error)
    except (RuntimeError, subprocess.CalledProcessError) as error:
        record["error"] = str(error)
    finally:
        if not arguments.keep:
            for part in ("venv", "checkout", "run"):
                shutil.rmtree(environment.folder / part, ignore_errors=True)
            (environment.folder / "ready.json").unlink(missing_ok=True)
    return record


def failures(record: dict[str, Any]) -> list[str]:
    """Return what went wrong in a row; nothing for one that could not be set up."""
    commands = [name for name, passed in record.get("commands", {}).items() if not passed]
    errors = [record["error"]] if "error" in record else []
    failed: list[str] = record.get("tests", {}).get("failed", [])
    return [*errors, *commands, *failed]


def keep(name: str, record: dict[str, Any]) -> None:
    """Put the record of a row beside those of the others, and all into the pages."""
    records = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    records[name] = record
    ordered = {key: records[key] for key in ROWS if key in records}
    RESULTS.write_text(json.dumps(ordered, indent=1) + "\n")
    report.main()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("rows", nargs="*", metavar="ROW", help=f"default: all of {' '.join(ROWS)}")
    parser.add_argument("--cache", type=Path, default=CACHE, help=f"default: {CACHE}")
    parser.add_argument("--keep", action="store_true", help="keep the environments")
    parser.add_argument(
        "--python", action="append", default=[], metavar="VERSION=PATH", help="a Python to use"
    )
    parser.add_argument("--tests", type=shlex.split, help="for pytest; nothing is recorded")
    arguments = parser.parse_args()
    arguments.python = dict(item.split("=", 1) for item in arguments.python)
    unknown = [name for name in arguments.rows if name not in ROWS]
    if unknown:
        parser.error(f"there is no row {unknown[0]!r}; the rows are: {' '.join(ROWS)}")
    arguments.cache = arguments.cache.resolve()
    if arguments.cache.is_relative_to(ROOT):
        parser.error(f"--cache {arguments.cache} is inside the checkout; name a folder outside it")

    wrong = 0
    for name in arguments.rows or ROWS:
        print(f"{name}: Python {ROWS[name].python}, {ROWS[name].source} versions", flush=True)
        record = run_row(name, arguments)
        if not arguments.tests:
            keep(name, record)
        print("  " + "; ".join(filter(None, report.outcome(record))), flush=True)
        for failure in failures(record):
            print(f"  failed: {failure}; see {arguments.cache / name / 'log'}", flush=True)
            wrong += 1
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
