"""Which worker gets which GPU. There may be none here, so the machine's list is given."""

import pytest

from fleetx.launch import devices
from fleetx.launch.errors import LaunchError


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


def test_without_gpus(monkeypatch):
    monkeypatch.setattr(devices, "visible_gpus", lambda environment: [])
    assert devices.choose(None, None, {}).shares == (("0",),)
    assert devices.choose("4,5", None, {}).shares == (("4",), ("5",))
    assert devices.choose("4,5", 3, {}).note == (
        "This machine has no GPU for PyTorch: --gpus 4,5 starts 3 CPU workers."
    )
