"""Where jobs use shared memory by themselves: plain scripts, forked processes, several machines."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

import warm_start
from fleetx.kernels import shared_segment
from ports import consecutive_ports
from waiting import LIMIT

ROOT = Path(__file__).parents[2]
WORKERS = Path(__file__).parent / "workers"
GROUP = "torch.backends"
FLEETRUN = [sys.executable, "-m", "fleetx.launch"]


@pytest.fixture(autouse=True)
def _memory() -> None:
    reason = shared_segment.why_impossible()
    if reason is not None:
        pytest.skip(reason)


def installed(folder: Path) -> Path:
    """Return a folder with what an installation tells PyTorch about FleetX."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    entries = project["entry-points"][GROUP]
    facts = folder / f"fleetx-{project['version']}.dist-info"
    facts.mkdir(parents=True)
    facts.joinpath("METADATA").write_text(
        f"Metadata-Version: 2.1\nName: fleetx\nVersion: {project['version']}\n"
    )
    lines = [f"{name} = {value}" for name, value in entries.items()]
    facts.joinpath("entry_points.txt").write_text("\n".join([f"[{GROUP}]", *lines, ""]))
    for name, value in entries.items():
        assert callable(EntryPoint(name, value, GROUP).load())
    return folder


@pytest.mark.slow
def test_no_group_waits_for_another(tmp_path: Path) -> None:
    script = str(WORKERS / "overlapping_groups.py")
    done = subprocess.run(
        [*FLEETRUN, "--nproc_per_node=4", "--log_dir=log", script, str(tmp_path)],
        env=warm_start.environment(),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=LIMIT,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(list(tmp_path.glob("ended.*"))) == 4


@pytest.mark.slow
def test_plain_scripts_use_it_unless_they_name_another(tmp_path: Path) -> None:
    path = os.pathsep.join([str(installed(tmp_path / "site")), str(ROOT / "src")])
    done = subprocess.run(
        [*FLEETRUN, "--nproc_per_node=2", "--log_dir=log", str(WORKERS / "plain_job.py")],
        env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=LIMIT,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    groups = [line.split()[1] for line in done.stdout.splitlines() if line.startswith("group")]
    assert groups == ["SharedMemoryGroup", "ProcessGroup", "ProcessGroup"]
    assert "the same bits" in done.stdout
    lines = [line for line in done.stdout.splitlines() if "instead of shared memory" in line]
    assert len(lines) == 1, lines
    assert lines[0].startswith("Gloo is used instead of shared memory: worker 0: no memory can be")


@pytest.mark.slow
def test_two_machines_of_two_workers_add_up_hierarchically(tmp_path: Path) -> None:
    hosts = ["127.0.0.1", "127.0.0.2"]
    port = str(consecutive_ports(2, hosts))
    launchers = [
        subprocess.Popen(
            [
                *(*FLEETRUN, "--ips", ",".join(hosts), "--host", host, "--started_port", port),
                *("--nproc_per_node=2", "--log_dir", f"log.{host}"),
                *(str(WORKERS / "hierarchy_job.py"), str(tmp_path)),
            ],
            env=warm_start.environment(),
            cwd=tmp_path,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        for host in hosts
    ]
    errors = [launcher.communicate(timeout=LIMIT)[1] for launcher in launchers]
    assert [launcher.returncode for launcher in launchers] == [0, 0], errors
    for rank in range(4):
        assert json.loads((tmp_path / f"told.{rank}").read_text()) == {
            "backend": "gloo",
            "within": True,
            "exact": True,
            "same bits": True,
        }
    assert not any("instead of shared memory" in text for text in errors)
