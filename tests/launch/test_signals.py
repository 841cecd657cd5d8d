"""A process that ends by a signal: what the signal usually means, and where in Python it was."""

import os
import re
import signal

import pytest

from fleetx.launch import failure

pytestmark = pytest.mark.slow  # starts jobs or servers

ENDS = {
    "SIGILL": ("os.kill(os.getpid(), signal.SIGILL)", "`fleetx info` shows the instruction set"),
    "SIGSEGV": ("ctypes.string_at(0)", "a crash in native code"),
    "SIGABRT": ("os.abort()", r"an uncaught C\+\+ exception"),
    # A page of a file that has become shorter, as one of a full /dev/shm.
    "SIGBUS": (
        "file = open('page', 'w+b'); file.truncate(4096); page = mmap.mmap(file.fileno(), 4096); "
        "file.truncate(0); page[0]",
        r"shared memory is full \(/dev/shm: \d+ of \d+ MB used now\)",
    ),
}
SCRIPT = """
import ctypes, mmap, os, signal, time
def deep():
    {end}
if os.environ.get("TRAINING_ROLE") != "PSERVER" and os.environ["RANK"] != "{waits}":
    deep()
time.sleep(1000)
"""


@pytest.mark.parametrize(
    ("name", "flags"),
    [
        ("SIGILL", ["--nproc_per_node=2"]),
        ("SIGSEGV", ["--nproc_per_node=1", "--hang_timeout=100"]),
        ("SIGABRT", ["--server_num=1", "--worker_num=1"]),
        ("SIGBUS", []),
    ],
)
def test_a_signal_is_explained_and_the_stack_shown(fleetrun, script, name, flags):
    end, meaning = ENDS[name]
    script(SCRIPT.format(end=end, waits=1))
    run = fleetrun(*flags, "train.py")
    assert run.end() == 128 + getattr(signal, name), run.stderr
    who = "Worker" if "--server_num=1" in flags else "Rank"
    assert re.search(f"{who} 0 on 127.0.0.1 failed first: ended by {name}, .*{meaning}", run.stderr)
    report = run.stderr.partition("last lines of")[2].splitlines()[1:]
    assert report[0].startswith("Fatal Python error: ")
    assert report[1].endswith("in <module>")
    assert report[2] == "    deep()"
    assert report[3].endswith("in deep")
    assert report[4] == f"    {end}"
    assert report[-1] == "-" * 72
    assert "run_script" not in run.stderr


def test_who_wants_no_stack_gets_none(fleetrun, script):
    script("import os\nos.abort()\n")
    run = fleetrun("train.py", env={"PYTHONFAULTHANDLER": ""})
    assert run.end() == 134
    assert "It wrote nothing to its log" in run.stderr


def test_kills_and_other_signals():
    assert failure.manner(-signal.SIGKILL, True).startswith("killed, probably out of memory")
    assert failure.manner(-signal.SIGKILL, False).startswith("killed by SIGKILL, by another")
    assert failure.manner(-signal.SIGUSR1, False) == "ended by SIGUSR1"
    assert failure.manner(-(signal.SIGRTMIN + 3), False).startswith("ended by signal ")
    assert "ulimit -t" in failure.manner(-signal.SIGXCPU, False)


DUMP = """Fatal Python error: Aborted

Thread 0x00007f0 [pt_autograd] (most recent call first):
  File "other.py", line 3 in helper

Current thread 0x00007f1 [python] (most recent call first):
  File "no_such.py", line 12 in step
  File "no_such.py", line 40 in <module>

Extension modules: numpy._core._multiarray_umath, torch._C (total: 2)
"""
ERROR = 'Traceback (most recent call last):\n  File "a.py", line 1, in <module>\n    fail()\n'
NATIVE = "terminate called after throwing an instance of 'gloo::IoException'\n"


def ended(folder, rank, text, code=-signal.SIGABRT, when=0.0):
    log = folder / f"workerlog.{rank}"
    log.write_text(text)
    os.utime(log, (when, when))
    return failure.of_worker(f"rank {rank}", "here", code, log, 0, False)


def test_only_the_thread_that_failed_is_shown_as_a_traceback(tmp_path):
    found = ended(tmp_path, 0, f"step 1\n{NATIVE}{DUMP}").excerpt
    assert found.splitlines() == [
        "step 1",
        NATIVE.strip(),
        "Fatal Python error: Aborted",
        '  File "no_such.py", line 40, in <module>',
        '  File "no_such.py", line 12, in step',
    ]
    outside = DUMP[: DUMP.index("Current")] + "Current thread 0x1 [python]:\n  <no Python frame>\n"
    assert ended(tmp_path, 0, outside).excerpt.endswith("(outside of Python code)")


def test_an_error_before_the_fatal_one_is_shown_too(tmp_path):
    text = f"{ERROR}KeyError: 'the cause'\n{NATIVE}{DUMP}"
    found = ended(tmp_path, 0, text).excerpt
    assert found.startswith(f"{ERROR}KeyError: 'the cause'\n{NATIVE}")
    assert found.endswith("in step")
    # A later traceback is what ended it: the dump was that of a process which it had started.
    later = ended(tmp_path, 0, f"{DUMP}{ERROR}ValueError: later\n").excerpt
    assert later == f"{ERROR}ValueError: later"


def test_all_lines_of_an_error_are_shown_that_have_the_rank_before_them(tmp_path):
    lines = [*ERROR.splitlines(), "RuntimeError: in a callback", *["  frame"] * 12, "the advice"]
    text = "".join(f"[rank1]: {line}\n\n" for line in lines) + "later\n" * 12
    found = ended(tmp_path, 0, text, 1).excerpt
    assert found.endswith("[rank1]: the advice")


def test_the_first_is_not_one_whose_connection_broke(tmp_path):
    closed = "  what():  Connection closed by peer [10.0.0.1]:23\n"
    victim = ended(tmp_path, 0, f"{NATIVE}{closed}{DUMP}", when=1)
    cause = ended(tmp_path, 1, DUMP, -signal.SIGILL, when=2)
    assert failure.first([victim, cause]) is cause
    # Its own exception counts, not what breaks while it ends.
    raised = ended(tmp_path, 2, f"{ERROR}KeyError: 1\n{NATIVE}\n\n{closed}{DUMP}", when=3)
    assert failure.first([victim, raised]) is raised
