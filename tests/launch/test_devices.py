"""The assignment of GPUs to workers, with a given list of GPUs."""

import os

import pytest
import torch

from fleetx.launch import devices
from fleetx.launch.launch_errors import LaunchError


@pytest.fixture
def four(monkeypatch):
    monkeypatch.setattr(devices, "visible_gpus", lambda environment: ["0", "1", "2", "3"])


@pytest.mark.usefixtures("four")
class TestOnGpus:
    def test_all(self):
        chosen = devices.choose(None, None, {})
        assert chosen.shares == (("0",), ("1",), ("2",), ("3",))
        assert (chosen.on_gpu, chosen.visible, chosen.note) == (True, "0,1,2,3", None)

    def test_some_are_counted_from_0(self):
        chosen = devices.choose("2,3", None, {})
        assert (chosen.shares, chosen.visible) == ((("0",), ("1",)), "2,3")

    def test_several_per_worker(self):
        assert devices.choose(None, 2, {}).shares == (("0", "1"), ("2", "3"))

    def test_uneven(self):
        with pytest.raises(LaunchError, match="--nproc_per_node 3 does not divide 4 GPUs evenly"):
            devices.choose(None, 3, {})

    def test_unknown(self):
        with pytest.raises(LaunchError, match="--gpus names GPU 5, but this machine offers 0, 1"):
            devices.choose("0,5", None, {})


def test_cuda_visible_devices_narrows(monkeypatch):
    monkeypatch.setattr(devices, "_gpu_count", lambda: 8)
    monkeypatch.setattr(devices, "_torch_has_gpu_support", lambda: True)
    assert devices.visible_gpus({"CUDA_VISIBLE_DEVICES": "6,7"}) == ["6", "7"]
    assert devices.visible_gpus({"CUDA_VISIBLE_DEVICES": ""}) == []
    assert devices.choose("7", None, {"CUDA_VISIBLE_DEVICES": "6,7"}).visible == "7"
    assert len(devices.visible_gpus({})) == 8


def test_counting(monkeypatch, tmp_path):
    command = tmp_path / "nvidia-smi"
    command.write_text("#!/bin/sh\ntest \"$1\" = -L && echo 'GPU 0: Card' && echo 'GPU 1: Card'\n")
    command.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    assert devices._gpu_count(tmp_path) == 2
    for name in ("nvidia0", "nvidia1", "nvidia2", "nvidiactl"):
        (tmp_path / "dev" / name).mkdir(parents=True)
    assert devices._gpu_count(tmp_path) == 3
    (tmp_path / "proc" / "driver" / "nvidia" / "gpus" / "0000:01:00.0").mkdir(parents=True)
    assert devices._gpu_count(tmp_path) == 1
    monkeypatch.setenv("PATH", str(tmp_path / "dev"))
    assert devices._gpu_count(tmp_path / "dev") == 0


def test_kind_of_the_installed_torch():
    assert devices._torch_has_gpu_support() == bool(torch.version.cuda or torch.version.hip)


def test_without_gpus(monkeypatch):
    monkeypatch.setattr(devices, "visible_gpus", lambda environment: [])
    assert devices.choose(None, None, {}).shares == (("0",),)
    assert devices.choose("4,5", None, {}).shares == (("4",), ("5",))
    assert devices.choose("4,5", 3, {}).note == (
        "This machine has no GPU for PyTorch: --gpus 4,5 starts 3 CPU workers."
    )
