"""Fixtures: start fleetrun, write scripts; remaining processes are ended after a test."""

import contextlib
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from etcds import Members
from launching import Launch, clean_environment


@pytest.fixture
def fleetrun(tmp_path: Path) -> Iterator[Callable[..., Launch]]:
    """Start fleetrun with these arguments, in the test's folder."""
    started: list[Launch] = []

    def start(
        *arguments: object,
        env: dict[str, str] | None = None,
        prefix: Sequence[str] = (),
        python: Sequence[str] = ("-m", "fleetx.launch"),
        typed: bytes = b"",
    ) -> Launch:
        command = [*prefix, sys.executable, *python, *map(str, arguments)]
        environment = clean_environment(**(env or {}))
        launch = Launch(command, tmp_path, environment, f"fleetrun{len(started)}", typed)
        started.append(launch)
        return launch

    yield start
    for launch in started:
        launch.show()
    for file in sorted(tmp_path.glob("log*/*log.*")):
        print(f"--- {file.relative_to(tmp_path)}", file.read_text(errors="replace"), sep="\n")
    for launch in started:
        launch.kill_whatever_is_left()


@pytest.fixture
def script(tmp_path: Path) -> Callable[..., Path]:
    """Write a script into the test's folder."""

    def write(text: str, name: str = "train.py") -> Path:
        path = tmp_path / name
        path.write_text(text)
        return path

    return write


@pytest.fixture
def mpirun() -> Iterator[Callable[..., tuple[str, ...]]]:
    """Return commands of Open MPI, each with a session directory of its own.

    Jobs that create the default one, /tmp/ompi.HOST.USER, at the same moment fail.
    """
    with contextlib.ExitStack() as folders:

        def command(*arguments: object) -> tuple[str, ...]:
            folder = folders.enter_context(tempfile.TemporaryDirectory(prefix="mpi-"))
            start = ("mpirun", "--allow-run-as-root", "--mca", "orte_tmpdir_base", folder)
            return (*start, *map(str, arguments))

        yield command


@pytest.fixture
def members(tmp_path: Path) -> Iterator[Members]:
    """Three etcds over https."""
    found = Members(tmp_path)
    yield found
    found.close()
