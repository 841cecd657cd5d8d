"""The example with several machines trains, and leaves no machine behind."""

import os
import shutil
import subprocess
import sys

import pytest
from launching import ROOT, clean_environment

import warm_start
from waiting import LIMIT

pytestmark = pytest.mark.slow  # starts jobs or servers


def namespaces_are_refused() -> str:
    """Say why there can be no network namespaces here, or return ''."""
    if shutil.which("ip") is None:
        return "there is no command ip: apt install iproute2"
    name = f"fxtry{os.getpid()}"
    made = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True)
    subprocess.run(["ip", "netns", "delete", name], capture_output=True)
    return f"no network namespaces: {made.stderr.strip()}" if made.returncode else ""


def test_two_machines_train_together(tmp_path):
    refused = namespaces_are_refused()
    if refused:
        pytest.skip(refused)
    example = ROOT / "examples" / "several_machines" / "run.py"
    process = subprocess.Popen(
        [sys.executable, "-B", str(example), "--output", str(tmp_path)],  # -B: not itself warm
        env=clean_environment(**warm_start.variables()),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    printed, _ = process.communicate(timeout=LIMIT)
    assert process.returncode == 0, printed[-3000:]
    assert "epoch 9: loss" in printed
    assert "exit codes of fleetrun: [0, 0]" in printed
    assert "epoch 9: loss" in (tmp_path / "machine1" / "workerlog.0").read_text()
    left = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True)
    assert f"fleetx{process.pid}" not in left.stdout
