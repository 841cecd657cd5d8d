"""Checkpoints that are damaged, mixed, incomplete or written by two at once never load silently."""

import logging
import multiprocessing
import os
import random
import shutil
import signal
import threading
import time

import pytest
import torch

from fleetx.checkpoint import FormatError
from fleetx.checkpoint.folder_lock import locked
from fleetx.fleet.saving import checkpoints
from fleetx.fleet.saving.checkpoints import Others
from waiting import wait_until

_fork = multiprocessing.get_context("fork")


def states(step):
    return {"model": {"w": torch.full((50,), float(step))}, "lr": 0.001, "step": step}


def step_of(found):
    assert torch.equal(found["model"]["w"], torch.full((50,), float(found["step"])))
    assert found["lr"] == 0.001
    return found["step"]


def files(folder):
    return sorted(path for path in folder.rglob("*") if path.is_file())


def save_as_two(root, step):
    """Save as two workers do, one after the other where the order allows it."""
    barrier, slots = threading.Barrier(2), [0, 0]

    def gather(rank):
        def exchange(number):
            slots[rank] = number
            barrier.wait()
            found = list(slots)
            barrier.wait()
            return found

        return exchange

    def run(rank):
        checkpoints.save(root, states(step) | {"rank": rank}, others=Others(rank, 2, gather(rank)))

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_what_was_saved_is_loaded(tmp_path):
    for step in range(5):
        checkpoints.save(tmp_path, states(step), keep=2)
    assert step_of(checkpoints.load(tmp_path)) == 4
    assert sorted(p.name for p in tmp_path.glob("checkpoint*")) == ["checkpoint.3", "checkpoint.4"]
    assert checkpoints.load(tmp_path / "nothing") is None


def test_no_flipped_byte_of_any_file_is_loaded(tmp_path, caplog):
    save_as_two(tmp_path, 0)
    folder = tmp_path / "checkpoint.0"
    generator = random.Random(1)
    assert len(files(folder)) == 5
    for path in files(folder):
        content = path.read_bytes()
        places = [0, len(content) - 1, *(generator.randrange(len(content)) for _ in range(40))]
        for at in places:
            damaged = bytearray(content)
            damaged[at] ^= 1 << generator.randrange(8)
            path.write_bytes(damaged)
            problems = 0
            for rank in range(2):
                try:
                    checkpoints.load(tmp_path, Others(rank, 2, lambda number: [number] * 2))
                except FormatError:
                    problems += 1
            # Each worker verifies the manifest and its own files.
            assert problems == (2 if path.parent == folder else 1), (path, at)
        path.write_bytes(content)
    assert checkpoints.load(tmp_path, Others(1, 2, lambda number: [number] * 2))["rank"] == 1


@pytest.mark.parametrize("damage", ["swap", "mix", "cut", "remove", "worker", "rename", "grow"])
def test_the_newest_whole_checkpoint_is_loaded_and_the_reason_told(tmp_path, caplog, damage):
    for step in range(3):
        save_as_two(tmp_path, step)
    newest, before = tmp_path / "checkpoint.2", tmp_path / "checkpoint.1"
    part = newest / "worker.0"
    if damage == "swap":  # the state of one checkpoint with the tensors of another
        shutil.copy(before / "worker.0/state.json", part)
    elif damage == "mix":
        shutil.copytree(before / "worker.0", part, dirs_exist_ok=True)
    elif damage == "cut":
        os.truncate(part / "tensors.safetensors", 100)
    elif damage == "remove":
        (part / "state.json").unlink()
    elif damage == "worker":
        shutil.rmtree(newest / "worker.1")
    elif damage == "rename":
        newest.rename(tmp_path / "checkpoint.7")
    elif damage == "grow":
        with open(part / "state.json", "ab") as stream:
            stream.write(b" ")
    with caplog.at_level(logging.WARNING):
        found = checkpoints.load(tmp_path, Others(0, 2, lambda number: [number] * 2))
    assert step_of(found) == 1
    assert "left out:" in caplog.text
    assert str(tmp_path / ("checkpoint.7" if damage == "rename" else "checkpoint.2")) in caplog.text


def test_if_none_is_whole_training_does_not_begin_anew(tmp_path):
    for step in range(2):
        checkpoints.save(tmp_path, states(step))
    for path in tmp_path.glob("*/manifest.json"):
        path.unlink()
    with pytest.raises(FormatError, match=r"no whole checkpoint: .*checkpoint\.1.*checkpoint\.0"):
        checkpoints.load(tmp_path)


def test_a_checkpoint_without_a_manifest_is_of_an_old_version(tmp_path):
    (tmp_path / "checkpoint.0").mkdir(parents=True)
    (tmp_path / "checkpoint.0/state.json").write_text("{}")
    with pytest.raises(FormatError, match=r"written by FleetX 0\.1"):
        checkpoints.load(tmp_path)


def _save_many(root, writer, count):
    for number in range(count):
        checkpoints.save(root, states(writer * 1000 + number), keep=50)


def test_two_writers_in_one_folder_both_publish_whole_checkpoints(tmp_path):
    writers = [_fork.Process(target=_save_many, args=(tmp_path, n, 12)) for n in range(2)]
    for process in writers:
        process.start()
    for process in writers:
        process.join()
    assert [process.exitcode for process in writers] == [0, 0]
    found = checkpoints.numbered(tmp_path)
    assert list(found) == list(range(24))
    seen = []
    for number in reversed(found):
        seen.append(step_of(checkpoints.load(tmp_path)))
        shutil.rmtree(found[number])
    assert sorted(seen) == [*range(12), *range(1000, 1012)]


def _save_for_ever(root):
    number = 0
    while True:
        checkpoints.save(root, states(number), keep=3)
        number += 1


def test_kills_during_saves_leave_whole_checkpoints(tmp_path):
    generator, last = random.Random(4), -1
    for _ in range(5):
        before = max(checkpoints.numbered(tmp_path), default=-1)
        process = _fork.Process(target=_save_for_ever, args=(tmp_path,))
        process.start()
        wait_until(
            lambda b=before: max(checkpoints.numbered(tmp_path), default=-1) > b, "a checkpoint"
        )
        time.sleep(generator.random() * 0.02)  # anywhere within a save
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        step_of(checkpoints.load(tmp_path))
        newest = max(checkpoints.numbered(tmp_path))
        assert newest > last
        last = newest
    checkpoints.save(tmp_path, states(0))
    assert not list(tmp_path.glob("*.tmp"))


def test_who_waits_for_the_lock_says_for_whom(tmp_path, caplog):
    def hold(ready, go):
        with locked(tmp_path):
            ready.set()
            go.wait()

    ready, go = _fork.Event(), _fork.Event()
    process = _fork.Process(target=hold, args=(ready, go))
    process.start()
    ready.wait()
    thread = threading.Thread(target=checkpoints.save, args=(tmp_path, states(1)))
    with caplog.at_level(logging.WARNING):
        thread.start()
        wait_until(lambda: "waiting for it" in caplog.text, "the message")
    assert f"is locked by process {process.pid} on" in caplog.text
    assert checkpoints.numbered(tmp_path) == {}
    go.set()
    thread.join()
    process.join()
    assert step_of(checkpoints.load(tmp_path)) == 1


def test_a_part_that_cannot_be_written_is_an_error_on_all_workers(tmp_path):
    with pytest.raises(TypeError, match="is a object"):
        checkpoints.save(tmp_path, {"bad": object()})
    # Worker 1 reports at the fourth exchange that it has written nothing.
    answers = iter([None, None, None, [1, 0], None])
    others = Others(0, 2, lambda number: next(answers) or [number, number])
    with pytest.raises(RuntimeError, match=r"worker\(s\) \[1\] could not do so"):
        checkpoints.save(tmp_path, states(1), others=others)
    assert checkpoints.load(tmp_path) is None
