"""The newest tensors in memory of the launcher: used if they are right, and never in the way."""

import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import warm_start
from fleetx.fleet.saving import checkpoints
from fleetx.fleet.saving.memory_copy import MemoryCopy, available_memory
from waiting import LIMIT

WORKER = Path(__file__).parent / "workers" / "resume_from_memory.py"


@pytest.fixture
def paths():
    files = [os.memfd_create("test") for _ in range(2)]
    yield [f"/proc/{os.getpid()}/fd/{file}" for file in files]
    for file in files:
        os.close(file)


def sizes(paths):
    return [os.stat(path).st_size for path in paths]


def states(step):
    return {"w": torch.full((500,), float(step)), "step": step}


def damage_disk(root, number):
    path = root / f"checkpoint.{number}/worker.0/tensors.safetensors"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def test_tensors_in_memory_are_not_read_from_the_disk(tmp_path, paths, caplog):
    memory = MemoryCopy(paths)
    for step in range(4):
        checkpoints.save(tmp_path, states(step), memory=memory)
        assert sorted(sizes(paths))[0] == 0  # the one before is freed
    damage_disk(tmp_path, 3)
    with caplog.at_level(logging.INFO):
        found = checkpoints.load(tmp_path, memory=MemoryCopy(paths))  # of a new process
    assert torch.equal(found["w"], states(3)["w"])
    assert "1 of 1 file(s) of tensors from memory" in caplog.text
    # What was loaded does not change with the memory.
    checkpoints.save(tmp_path, states(4), memory=memory)
    checkpoints.save(tmp_path, states(5), memory=memory)
    assert torch.equal(found["w"], states(3)["w"])


@pytest.mark.parametrize("damage", ["flip", "cut", "empty", "older", "gone"])
def test_memory_that_does_not_match_the_manifest_is_left_aside(tmp_path, paths, damage, caplog):
    memory = MemoryCopy(paths)
    checkpoints.save(tmp_path, states(0), memory=memory)
    full = max(paths, key=lambda path: os.stat(path).st_size)
    if damage == "flip":
        with open(full, "r+b") as stream:
            stream.seek(-1, os.SEEK_END)
            stream.write(b"\xff")
    elif damage == "cut":
        os.truncate(full, 100)
    elif damage == "empty":
        os.truncate(full, 0)
    elif damage == "older":
        checkpoints.save(tmp_path, states(1))
    elif damage == "gone":
        paths = ["/proc/0/fd/1", "/proc/0/fd/2"]
    with caplog.at_level(logging.INFO):
        found = checkpoints.load(tmp_path, memory=MemoryCopy(paths))
    assert found["step"] == (1 if damage == "older" else 0)
    assert torch.equal(found["w"], states(found["step"])["w"])
    assert "0 of 1 file(s) of tensors from memory" in caplog.text


def test_a_save_that_fails_keeps_the_state_before_it(tmp_path, paths):
    memory = MemoryCopy(paths)
    checkpoints.save(tmp_path, states(0), memory=memory)
    before = sizes(paths)
    with pytest.raises(TypeError, match="cannot be saved"):
        checkpoints.save(
            tmp_path, {"w": torch.ones(3), "z": torch.ones(1, dtype=torch.complex64)}, memory=memory
        )
    assert sizes(paths) == before
    damage_disk(tmp_path, 0)
    assert checkpoints.load(tmp_path, memory=MemoryCopy(paths))["step"] == 0


def test_too_little_memory_is_said_once(tmp_path, paths, caplog):
    memory = MemoryCopy(paths, room=3999)  # the tensor has 2000 bytes
    for step in range(3):
        checkpoints.save(tmp_path, states(step), memory=memory)
    assert caplog.text.count("is not kept in memory") == 1
    assert "more than half of the 3999 bytes available" in caplog.text
    assert sizes(paths) == [0, 0]
    assert checkpoints.load(tmp_path, memory=memory)["step"] == 2
    assert available_memory() > 0


@pytest.mark.slow
def test_a_restarted_worker_loads_from_memory(tmp_path):
    command = [sys.executable, "-m", "fleetx.launch", "--nproc_per_node=2", "--max_restart=1"]
    command += [f"--log_dir={tmp_path / 'log'}", "--log_all", str(WORKER), str(tmp_path)]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=LIMIT, env=warm_start.environment()
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for rank in range(2):
        text = (tmp_path / f"log/workerlog.{rank}").read_text()
        assert "1 of 1 file(s) of tensors from memory" in text
        assert text.rstrip().endswith("resumed")
        # The memory has gone with the launcher.
        for path in (tmp_path / f"memory.{rank}").read_text().split(":"):
            assert not os.path.exists(path)
