"""Saves that training does not wait for: what they hold, their errors, and the end of a program."""

import itertools
import mmap
import multiprocessing
import platform
import re
import resource
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import warm_start
from fleetx import fleet
from fleetx.checkpoint.folder_lock import locked
from fleetx.fleet.saving import checkpoints
from fleetx.fleet.saving.copy_buffer import CopyBuffer
from fleetx.fleet.saving.snapshot import take
from waiting import LIMIT

WORKER = Path(__file__).parent / "workers" / "save_in_background.py"
KERNEL = tuple(int(n) for n in re.findall(r"\d+", platform.release())[:2])
_fork = multiprocessing.get_context("fork")


@pytest.fixture
def session(fresh_fleet):
    fleet.init(is_collective=True)
    yield fleet
    fleet.wait_for_checkpoint()


def test_a_checkpoint_holds_what_was_there_at_the_call(session, tmp_path):
    model = torch.nn.Linear(3, 2)
    expected = model.weight.detach().clone()
    with locked(tmp_path):  # the thread cannot write anything yet
        assert session.save_checkpoint(str(tmp_path), blocking=False, model=model) is None
        with torch.no_grad():
            model.weight.zero_()
        assert checkpoints.numbered(tmp_path) == {}
    assert session.wait_for_checkpoint() == tmp_path / "checkpoint.0"
    session.load_checkpoint(str(tmp_path), model=model)
    assert torch.equal(model.weight, expected)


def test_the_next_save_and_the_next_load_wait(session, tmp_path):
    for step in range(4):
        session.save_checkpoint(str(tmp_path), blocking=step % 2 == 1, step=step)
    assert list(checkpoints.numbered(tmp_path)) == [1, 2, 3]
    session.save_checkpoint(str(tmp_path), blocking=False, step=4)
    assert session.load_checkpoint(str(tmp_path)) == {"step": 4}


def test_an_error_is_raised_once_by_the_next_call(session, tmp_path):
    (tmp_path / "file").write_bytes(b"")
    fine = str(tmp_path / "fine")
    calls = [
        lambda: session.save_checkpoint(fine, blocking=False, step=1),
        lambda: session.load_checkpoint(fine),
        session.wait_for_checkpoint,
    ]
    for call in calls:
        session.save_checkpoint(str(tmp_path / "file"), blocking=False, step=1)
        with pytest.raises(FileExistsError):
            call()
        assert not (tmp_path / "fine").exists()
    session.save_checkpoint(str(tmp_path / "fine"), blocking=False, step=1)
    assert session.wait_for_checkpoint() == tmp_path / "fine/checkpoint.0"


def test_what_cannot_be_saved_is_an_error_at_once(session, tmp_path):
    with pytest.raises(TypeError, match="is a object"):
        session.save_checkpoint(str(tmp_path), blocking=False, bad=object())
    session.wait_for_checkpoint()  # nothing is left of it
    assert checkpoints.numbered(tmp_path) == {}


def test_copies_are_independent_and_their_memory_is_used_again():
    buffer = CopyBuffer()
    states = {
        "a": torch.arange(6.0).reshape(2, 3).t(),
        "b": torch.tensor(True),
        "c": torch.zeros(0),
        "d": [torch.ones(3, dtype=torch.bfloat16), 5],
    }
    expected = take(states)
    first = take(states, buffer)
    assert first.text == expected.text
    assert all(torch.equal(first.tensors[n], expected.tensors[n]) for n in expected.tensors)
    address = first.tensors["/a"].data_ptr()
    states["a"].zero_()
    assert first.tensors["/a"].sum() == 15
    again = take(states, buffer)
    assert again.tensors["/a"].data_ptr() == address
    assert again.tensors["/a"].sum() == 0


@pytest.mark.skipif(
    sys.platform != "linux" or not KERNEL >= (5, 14),
    reason="needs MADV_POPULATE_WRITE (Linux 5.14)",
)
def test_prepared_memory_is_there_before_the_copy_and_used_by_it():
    tensors = {"a": torch.arange(5_000_000.0), "b": torch.ones(3), "c": torch.zeros(0)}
    buffer = CopyBuffer()
    buffer.prepare(tensors.values())
    buffer.wait()
    assert buffer.size == 20_000_000 + 2 * 64
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    copies = buffer.copy(tensors)
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - faults
    assert faults < 20_000_000 / mmap.PAGESIZE / 2
    assert buffer.size == 20_000_000 + 2 * 64
    assert all(torch.equal(copies[name], tensor) for name, tensor in tensors.items())


def test_memory_is_added_for_what_was_not_prepared():
    buffer = CopyBuffer()
    model = {"weight": torch.arange(1000.0)}
    optimizer = {f"state.{i}": torch.full((500 + i,), i) for i in range(3)}
    buffer.prepare(model.values())
    prepared = buffer.size
    for _ in range(2):
        copies = buffer.copy(model | optimizer)
        assert all(torch.equal(copies[n], t) for n, t in (model | optimizer).items())
        spans = sorted((c.data_ptr(), c.data_ptr() + c.nbytes) for c in copies.values())
        assert all(end <= start for (_, end), (start, _) in itertools.pairwise(spans))
        added = sum(-(-t.nbytes // 64) * 64 for t in optimizer.values())
        assert buffer.size == prepared + added
    buffer.prepare((model | optimizer).values())
    assert buffer.size == prepared + added


def test_a_save_does_not_wait_until_all_memory_is_prepared(session, tmp_path):
    state = {"values": torch.randn(4_000_000)}
    session.prepare_checkpoint(state=state, step=0)
    session.save_checkpoint(str(tmp_path), blocking=False, state=state, step=1)
    loaded = session.load_checkpoint(str(tmp_path))
    assert loaded["step"] == 1
    assert torch.equal(loaded["state"]["values"], state["values"])


def test_preparing_refuses_what_a_save_would_refuse(session):
    with pytest.raises(TypeError, match="is a object"):
        session.prepare_checkpoint(bad=object())
    with pytest.raises(ValueError, match="cannot be the name of a part"):
        session.prepare_checkpoint(**{"random@states": 1})


def test_a_process_that_is_forked_during_a_save_does_not_keep_the_lock(tmp_path):
    end = _fork.Event()
    process = _fork.Process(target=end.wait)
    with locked(tmp_path):
        process.start()
    checkpoints.save(tmp_path, {"step": 1})  # waits for ever if the lock is still held
    end.set()
    process.join()
    assert list(checkpoints.numbered(tmp_path)) == [0]


def run(tmp_path, *lines):
    command = [sys.executable, "-c", "\n".join(["from fleetx import fleet", *lines])]
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=LIMIT,
        cwd=tmp_path,
        env=warm_start.environment(),
    )


@pytest.mark.slow
def test_the_end_of_a_program_waits_for_its_checkpoint(tmp_path):
    save = "fleet.init(is_collective=True); fleet.save_checkpoint('out', blocking=False, a=1)"
    for ending, code in (("", 0), ("raise SystemExit(3)", 3), ("raise ValueError('no')", 1)):
        done = run(tmp_path, save, "import os; os.chdir('/')", ending)
        assert done.returncode == code, done.stderr
    assert list(checkpoints.numbered(tmp_path / "out")) == [0, 1, 2]
    assert checkpoints.load(tmp_path / "out")["a"] == 1


@pytest.mark.slow
def test_an_error_that_nobody_has_seen_ends_the_program(tmp_path):
    (tmp_path / "out").write_bytes(b"")
    save = "fleet.init(is_collective=True); fleet.save_checkpoint('out', blocking=False, a=1)"
    done = run(tmp_path, save, "print('last line')")
    assert done.returncode == 1
    assert done.stdout == "last line\n"
    assert "the last checkpoint could not be written" in done.stderr
    assert "FileExistsError" in done.stderr


@pytest.mark.slow
def test_two_workers_save_and_train_at_the_same_time(tmp_path):
    command = [sys.executable, "-m", "fleetx.launch", "--nproc_per_node=2"]
    command += [f"--log_dir={tmp_path / 'log'}", "--log_level=ERROR", str(WORKER), str(tmp_path)]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=LIMIT, env=warm_start.environment()
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "written checkpoint.4" in done.stdout
    assert "TypeError" in (tmp_path / "error.1").read_text()
    assert (
        "RuntimeError: every worker writes a state of its own, but worker(s) [1]"
        in (tmp_path / "error.0").read_text()
    )
    assert checkpoints.numbered(tmp_path / "bad") == {}
    assert checkpoints.load(tmp_path / "one")["value"] == 7
