"""Where idle workers are: real processes that wait in different ways."""

from __future__ import annotations

import importlib.util
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fleetx.launch import processes, run_script, stacks, whereabouts
from fleetx.launch.whereabouts import Place
from fleetx.runtime import heartbeat
from waiting import wait_until

HERE = "print('here', flush=True)\n    time.sleep(1000)"
Start = Callable[..., Any]


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """Start a script as a worker that has made steps, and wait until it says that it is there."""
    processes_started = []
    beat = tmp_path / "beat"
    heartbeat.prepare(beat)
    monkeypatch.setenv("FLEETX_HEARTBEAT", str(beat))
    monkeypatch.setattr(heartbeat, "_writer", None)

    def run(code: str, *, steps: int = 2, stdin: int = subprocess.DEVNULL, **traced: Any) -> Any:
        for _ in range(steps):
            heartbeat.beat()
        (tmp_path / "train.py").write_text("import sys, time\nsys.path.insert(0, '.')\n" + code)
        file = tmp_path / "stacks" if traced.get("traced", True) else None
        wrapper = [run_script.__file__, str(file), str(stacks.SIGNAL)] if file else []
        process = subprocess.Popen(
            [sys.executable, *wrapper, "train.py"],
            cwd=tmp_path,
            stdin=stdin,
            stdout=subprocess.PIPE,
            text=True,
        )
        processes_started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "here\n"
        spec = SimpleNamespace(heartbeat=beat, stacks=file, name="rank 0", role="rank")
        return SimpleNamespace(spec=spec, process=process)

    yield run
    for process in processes_started:
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                stream.close()


def wait_in(path: str, function: str, folder: Path) -> str:
    """Return a script that waits in a function of a file with this path."""
    file = folder / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"import time\ndef {function}():\n    {HERE}\n")
    return f"exec(compile(open({str(file)!r}).read(), {str(file)!r}, 'exec'))\n{function}()\n"


@pytest.mark.parametrize(
    ("path", "function", "place"),
    [
        ("torch/distributed/distributed_c10d.py", "all_reduce", Place.COLLECTIVE),
        ("torch/distributed/distributed_c10d.py", "barrier", Place.EXEMPT),
        ("torch/distributed/distributed_c10d.py", "init_process_group", Place.EXEMPT),
        ("torch/distributed/distributed_c10d.py", "recv", Place.ELSEWHERE),
        ("torch/autograd/graph.py", "_engine_run_backward", Place.COLLECTIVE),
        ("torch/_dynamo/convert_frame.py", "compile", Place.EXEMPT),
        ("torch/_dynamo/eval_frame.py", "compiled_function", Place.ELSEWHERE),
        ("torch/_inductor/compile_fx.py", "compile_fx", Place.EXEMPT),
        ("torch/serialization.py", "save", Place.EXEMPT),
        ("fleetx/checkpoint/atomic.py", "write", Place.EXEMPT),
        ("lib/bdb.py", "user_line", Place.EXEMPT),
        ("own_code.py", "collect", Place.ELSEWHERE),
    ],
)
def test_stack_of_the_main_thread(
    path: str, function: str, place: Place, start: Start, tmp_path: Path
) -> None:
    worker = start(wait_in(path, function, tmp_path))
    assert whereabouts.places([worker]) == {place}
    assert whereabouts.places([worker]) == {place}  # an answer is not taken for the next one


def test_files_of_torch_exist() -> None:
    """The paths above are PyTorch's own."""
    found = importlib.util.find_spec("torch")
    assert found is not None
    assert found.origin is not None
    root = Path(found.origin).parent
    for file in (
        "distributed/distributed_c10d.py",
        "autograd/graph.py",
        "_dynamo/convert_frame.py",
        "_inductor/compile_fx.py",
        "serialization.py",
        "distributed/checkpoint",
        "utils/cpp_extension.py",
    ):
        assert (root / file).exists(), file


def test_imports_may_take_any_time(start: Start, tmp_path: Path) -> None:
    (tmp_path / "slow_module.py").write_text(f"import time\nif True:\n    {HERE}\n")
    assert whereabouts.places([start("import slow_module\n")]) == {Place.EXEMPT}


def test_before_the_second_step_any_time_is_fine(start: Start, tmp_path: Path) -> None:
    code = wait_in("torch/distributed/distributed_c10d.py", "all_reduce", tmp_path)
    assert whereabouts.places([start(code, steps=1)]) == {Place.EXEMPT}


def test_announced_waits(start: Start) -> None:
    worker = start(f"if True:\n    {HERE}\n")
    with heartbeat.collective("parameters from servers"):
        assert whereabouts.places([worker]) == {Place.COLLECTIVE}
        for name in heartbeat.MAY_TAKE_LONG:
            with heartbeat.collective(name):
                assert whereabouts.places([worker]) == {Place.EXEMPT}
        assert whereabouts.places([worker]) == {Place.COLLECTIVE}
    assert whereabouts.places([worker]) == {Place.ELSEWHERE}


def test_frozen(start: Start, tmp_path: Path) -> None:
    worker = start(wait_in("torch/_dynamo/convert_frame.py", "compile", tmp_path))
    assert whereabouts.frozen([worker]) == ()
    os.kill(worker.process.pid, signal.SIGSTOP)
    wait_until(lambda: processes.state(worker.process.pid) == "T", "the process to be stopped")
    assert whereabouts.places([worker]) == {Place.FROZEN}
    assert whereabouts.frozen([worker]) == (f"rank 0 (process {worker.process.pid})",)


INPUT = "print('here', flush=True)\n"


@pytest.mark.parametrize("code", ["input()", "sys.stdin.readline()", "breakpoint()"])
def test_waiting_for_input(code: str, start: Start) -> None:
    worker = start(INPUT + code, stdin=subprocess.PIPE)
    pid = worker.process.pid
    wait_until(lambda: processes.waits_for_input(pid), "the process to read")
    assert whereabouts.places([worker]) == {Place.EXEMPT}


def test_waiting_for_a_line_at_a_terminal(start: Start) -> None:
    """With readline, Python waits in a select."""
    terminal, other = pty.openpty()
    try:
        code = "import os, readline\nos.dup2(0, 1)\ninput()\n"
        worker = start(INPUT + code, stdin=other)
        wait_until(lambda: processes.waits_for_input(worker.process.pid), "the process to read")
        assert whereabouts.places([worker]) == {Place.EXEMPT}
    finally:
        os.close(other)
        os.close(terminal)


def test_input_that_is_there_is_not_waited_for(start: Start) -> None:
    worker = start(f"if True:\n    {HERE}\n", stdin=subprocess.PIPE)
    assert not processes.waits_for_input(worker.process.pid)


def test_a_process_without_the_handler_is_left_alone(start: Start) -> None:
    worker = start(f"if True:\n    {HERE}\n", traced=False)
    worker.spec.stacks = worker.spec.heartbeat  # as if the script had replaced itself with exec
    assert whereabouts.places([worker]) == {Place.ELSEWHERE}
    assert worker.process.poll() is None
