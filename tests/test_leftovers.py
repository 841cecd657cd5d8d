"""The fixture that fails tests finds each kind of thing that one may leave behind."""

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import threading

import pytest
import torch

import leftovers
from fleetx import fleet, static
from waiting import wait_until


@contextlib.contextmanager
def process():
    with subprocess.Popen(["sleep", "1000"]) as child:
        yield "sleep 1000"
        child.wait()  # it was ended by what found it


@contextlib.contextmanager
def orphan():
    """A process whose parent has ended."""
    command = ["sh", "-c", "sleep 1001 & echo $!"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        parent.wait()
        yield "sleep 1001"
    os.waitpid(pid, 0)


@contextlib.contextmanager
def thread():
    end = threading.Event()
    started = threading.Thread(target=end.wait, name="forgotten", daemon=True)
    started.start()
    yield "the thread 'forgotten'"
    end.set()
    started.join()


@contextlib.contextmanager
def listening_socket():
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"the listening tcp socket at port {server.getsockname()[1]}"


@contextlib.contextmanager
def variable():
    os.environ["FORGOTTEN"] = "1"
    yield "the environment variable FORGOTTEN: None before, '1' now"
    del os.environ["FORGOTTEN"]


@contextlib.contextmanager
def folder():
    before = os.getcwd()
    os.chdir("/")
    yield f"the working directory: {before!r} before, '/' now"
    os.chdir(before)


@contextlib.contextmanager
def session():
    fleet.init(is_collective=True)
    yield "the session of fleetx.fleet: None before, 'initialised' now"
    leftovers.end_sessions()


@contextlib.contextmanager
def default_program():
    before = static.default_main_program()
    with static.program_guard(static.Program(), static.Program()):
        yield "the default main program: "
    assert static.default_main_program() is before


@contextlib.contextmanager
def default_dtype():
    torch.set_default_dtype(torch.float64)
    yield "torch's default dtype: torch.float32 before, torch.float64 now"
    torch.set_default_dtype(torch.float32)


KINDS = [process, orphan, thread, listening_socket, variable, folder, session]
KINDS += [default_program, default_dtype]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_what_is_left_is_named(kind, monkeypatch):
    monkeypatch.setattr(leftovers, "GRACE", 0.0)
    checkout = leftovers.Checkout()
    was = leftovers.before(checkout)
    assert leftovers.left(was, checkout) == []
    with kind() as words:
        found = leftovers.left(was, checkout)
        assert any(words in each for each in found), found
    wait_until(lambda: not leftovers.left(was, checkout), "a clean end")


@pytest.mark.skipif(shutil.which("git") is None, reason="without git nothing is a checkout")
def test_files_in_the_checkout_are_named(tmp_path):
    """In a repository of its own: tests beside this one look at theirs at any moment."""
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True)
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "known").touch()
    os.utime(tmp_path / "docs", (1, 1))  # times of files have the resolution of a clock tick
    checkout = leftovers.Checkout(tmp_path)
    was = leftovers.before(checkout)
    assert leftovers.left(was, checkout) == []
    (tmp_path / "docs" / "forgotten").touch()
    assert leftovers.left(was, checkout) == ["the file docs/forgotten in the checkout"]
    assert leftovers.left(was, checkout) == []  # said once


def test_what_is_just_ending_is_waited_for():
    checkout = leftovers.Checkout()
    was = leftovers.before(checkout)
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    with child:
        threading.Timer(0.05, child.stdin.close).start()
        assert leftovers.left(was, checkout) == []
