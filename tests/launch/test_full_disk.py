"""Full disks: the cause is the last line on the terminal.

Without root there is no small file system, so files are limited in size, or are /dev/full.
"""

from __future__ import annotations

import errno
import logging
import os
import signal
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from launching import Launch

from fleetx.checkpoint import atomic
from fleetx.launch import console, failure, fault_dump, full_disk
from fleetx.launch.output import Follower
from waiting import LIMIT as LIMIT_OF_TESTS

Fleetrun = Callable[..., Launch]
Script = Callable[..., Path]

LIMIT = "import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))\n"


@pytest.mark.parametrize("flags", [["train.py"], ["-m", "train"]])
def test_a_log_that_takes_no_more(
    flags: list[str], fleetrun: Fleetrun, script: Script, tmp_path: Path
) -> None:
    script(f"{LIMIT}while True:\n    print('x' * 1000)\n")
    run = fleetrun(*flags)
    assert run.end() == 1
    *_, end, last = run.stderr.splitlines()
    assert set(end) == {"-"}
    log = Path("log/workerlog.0")
    assert last == (
        f"File too large: {log} could not be written; raise the limit of the size of a file "
        "(ulimit -f), or choose another folder with --log_dir."
    )
    assert "OSError: [Errno 27] File too large" in run.stderr  # the traceback that is not in there
    assert "print('x' * 1000)" in run.stderr
    assert "OSError" not in (tmp_path / log).read_text()


def test_a_checkpoint_that_does_not_fit(fleetrun: Fleetrun, script: Script, tmp_path: Path) -> None:
    script(
        f"{LIMIT}from fleetx.checkpoint import atomic\n"
        "print('saving')\natomic.write_bytes('checkpoints/model', bytes(100_000))\n"
    )
    run = fleetrun("train.py")
    assert run.end() == 1
    file = tmp_path / "checkpoints/model"
    assert run.stderr.splitlines()[-1] == (
        f"File too large: {file} could not be written; raise the limit of the size of a file "
        "(ulimit -f), or use another folder."
    )
    assert not file.exists()


def test_errors_of_saving_name_the_file(tmp_path: Path) -> None:
    target = tmp_path / "model"

    def save() -> None:
        with atomic.atomic_write(target) as stream, open("/dev/full", "wb") as full:
            os.dup2(full.fileno(), stream.fileno())
            stream.write(b"x" * 100)

    with pytest.raises(OSError, match="No space left on device") as caught:
        save()
    assert caught.value.filename == str(target)
    assert full_disk.is_full(caught.value)
    assert full_disk.of_error(caught.value, "").startswith(
        f"No space left on device: {target} could not be written ({tmp_path}: "
    )
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("reason", "beginning"),
    [
        (
            "OSError: [Errno 28] No space left on device: '/mnt/models/a.pt'",
            "No space left on device: /mnt/models/a.pt could not be written; free space there",
        ),
        (
            "OSError: [Errno 122] Disk quota exceeded: '/mnt/home/a.pt'",
            "Disk quota exceeded: /mnt/home/a.pt could not be written; free space there",
        ),
        ("OSError: [Errno 28] No space left on device", "No space left on device: a file could"),
        (
            "SafetensorError: Error while serializing: I/O error: No space left on device "
            "(os error 28)",
            "No space left on device: a file could not be written (see above)",
        ),
        (
            "RuntimeError: [enforce fail at inline_container.cc:672] . unexpected pos 576 vs 534",
            "PyTorch could not write a file, usually because the disk is full",
        ),
        (
            "RuntimeError: unable to write to file </torch_93_1>: No space left on device (28)",
            "Shared memory is full (/dev/shm: ",
        ),
        (
            "RuntimeError: DataLoader worker (pid 9) is killed by signal: Bus error. It is "
            "possible that dataloader's workers are out of shared memory.",
            "Shared memory is full (/dev/shm: ",
        ),
        (
            "ncclSystemError: Error while creating shared memory segment /dev/shm/nccl-1 (size 9): "
            "No space left on device",
            "Shared memory is full (/dev/shm: ",
        ),
        ("ValueError: no space", ""),
    ],
)
def test_last_words(reason: str, beginning: str) -> None:
    found = full_disk.of_text(reason)
    assert found.startswith(beginning)
    assert bool(found) == bool(beginning)
    assert "\n" not in found


def ended(log: Path, text: str, code: int = 1, exception: str = "") -> list[str]:
    """Return the lines on the terminal for a worker that ended like this."""
    log.write_text(text)
    found = failure.of_worker("rank 0", "here", code, log, 0, False, exception)
    assert failure.Failure.from_json(found.to_json()) == found
    return found.text().splitlines()


@pytest.mark.parametrize("free", [0, 10_000])
def test_a_bus_error_with_full_shared_memory(
    free: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = SimpleNamespace(f_blocks=20_000, f_frsize=4096, f_bfree=free, f_bavail=free)
    monkeypatch.setattr(os, "statvfs", lambda folder: found)
    lines = ended(tmp_path / "log", "step 1\n", -signal.SIGBUS)
    if free:
        assert set(lines[-1]) == {"-"}
    else:
        assert lines[-1].startswith("Shared memory is full (/dev/shm: 82 of 82 MB used now): ")


def test_other_failures_have_no_such_line(tmp_path: Path) -> None:
    trace = "Traceback (most recent call last):\n"
    for exception in ("ValueError: a\n", "ValueError: a\n" + "b\n" * 50):
        text = trace + '  File "train.py", line 1, in <module>\n' + exception
        for known in ("", text):
            lines = ended(tmp_path / "log", text, exception=known)
            assert set(lines[-1]) == {"-"}
            assert sum(trace.strip() in line for line in lines) == 1


def test_stacks_are_no_exceptions(tmp_path: Path) -> None:
    file = tmp_path / "stacks"
    assert fault_dump.exception(None) == ""
    assert fault_dump.exception(file) == ""
    file.write_text('Thread 0x1 (most recent call first):\n  File "train.py", line 1 in main\n')
    assert fault_dump.exception(file) == ""
    with file.open("a") as stream:
        stream.write("\nUncaught exception:\nOSError: [Errno 28] No space left on device\n")
    assert fault_dump.exception(file) == "OSError: [Errno 28] No space left on device"


def test_what_the_launcher_cannot_write(fleetrun: Fleetrun, script: Script, tmp_path: Path) -> None:
    script("print('trains')")
    (tmp_path / "log").mkdir()
    (tmp_path / "log/endpoints.log").symlink_to("/dev/full")
    run = fleetrun("train.py")
    assert run.end() == 1
    assert run.stderr.splitlines()[-1].startswith(
        "fleetrun: No space left on device: a file in log (--log_dir) or /"
    )
    assert "Traceback" not in run.stderr


def test_a_terminal_that_takes_no_more(tmp_path: Path) -> None:
    """The output goes to a file on a full disk; the job continues."""
    (tmp_path / "log").write_text("a line\n")
    told: list[logging.LogRecord] = []
    handler = logging.Handler()
    handler.emit = told.append  # type: ignore[method-assign,assignment]
    console.log.addHandler(handler)
    try:
        with open("/dev/full", "wb", buffering=0) as full:
            follower = Follower([(tmp_path / "log", 0, "")], full.fileno())
            follower.finish(LIMIT_OF_TESTS)
    finally:
        console.log.removeHandler(handler)
    assert [record.getMessage() for record in told] == [
        "The output can no longer be shown: No space left on device; the logs have it."
    ]
    assert not follower.broken.is_set()


def test_which_errors_mean_a_full_disk() -> None:
    assert full_disk.is_full(OSError(errno.ENOSPC, "full"))
    assert not full_disk.is_full(OSError(errno.EACCES, "forbidden"))
