"""Techniques of installed packages: found by their entry points, named if they cannot be loaded."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import warm_start

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.slow  # starts processes that load torch


def run(folder: Path, value: str) -> subprocess.CompletedProcess[str]:
    """Make a strategy where a package with this entry point is installed."""
    installed = folder / "outside-1.0.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: outside\nVersion: 1.0\n")
    (installed / "entry_points.txt").write_text(f"[fleetx.techniques]\neight_bits = {value}\n")
    example = ROOT / "examples" / "own_technique"
    code = (
        "from fleetx import fleet; strategy = fleet.DistributedStrategy(); "
        "strategy.eight_bits_configs = {'levels': 5}; print(strategy.eight_bits)"
    )
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **warm_start.torch_variables(folder, example, ROOT / "src")},
        capture_output=True,
        text=True,
    )


def test_a_package_brings_a_technique(tmp_path: Path) -> None:
    done = run(tmp_path, "eight_bits:EightBits")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "False\n"


def test_a_package_that_cannot_be_loaded_is_named(tmp_path: Path) -> None:
    done = run(tmp_path, "eight_bits:Missing")
    assert done.returncode == 1
    assert "the technique 'eight_bits' of outside (eight_bits:Missing) cannot be loaded" in (
        done.stderr
    )
