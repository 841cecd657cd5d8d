"""The time limit of workers without progress, with a fake clock.

A loaded machine may stand still for longer than any limit.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fleetx.launch import hang_detection, whereabouts
from fleetx.launch.hang_detection import Idle, Progress, hang_of
from fleetx.launch.processes import cpu_seconds
from fleetx.launch.whereabouts import Place
from fleetx.runtime import heartbeat
from waiting import wait_until


class Clock:
    """A clock that only tests move, with what the workers compute and where they are."""

    def __init__(self) -> None:
        self.now = 100.0
        self.used = 0.0
        self.places = {Place.COLLECTIVE}
        self.looks = 0

    def monotonic(self) -> float:
        return self.now

    def look(self, workers: Any) -> set[Place]:
        self.looks += 1
        return self.places


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(hang_detection, "time", clock)
    monkeypatch.setattr(hang_detection, "cpu_seconds", lambda pids: clock.used)
    monkeypatch.setattr(whereabouts, "places", clock.look)
    return clock


@pytest.fixture
def worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """This process as a worker."""
    beat, log = tmp_path / "beat", tmp_path / "log"
    heartbeat.prepare(beat)
    log.touch()
    monkeypatch.setenv("FLEETX_HEARTBEAT", str(beat))
    monkeypatch.setattr(heartbeat, "_writer", None)
    spec = SimpleNamespace(heartbeat=beat, log=log, role="rank", rank=0, name="rank 0")
    return SimpleNamespace(spec=spec, process=SimpleNamespace(pid=os.getpid(), returncode=None))


def train(clock: Clock, watch: Progress, seconds: float, steps: int) -> None:
    for _ in range(steps):
        wait(clock, watch, seconds)
        heartbeat.beat()
    watch.idle()


def wait(clock: Clock, watch: Progress, seconds: float) -> float | None:
    """Let time pass until a hang is found; return how long that took, or None."""
    end = clock.now + seconds
    began = clock.now
    while clock.now < end:
        clock.now = min(end, clock.now + 1.0)
        if hang_of([watch.idle()], None, "here") is not None:
            return clock.now - began
    return None


@pytest.mark.parametrize("sign", ["step", "run", "line"])
def test_steps_runs_and_output_are_progress(sign: str, clock: Clock, worker: Any) -> None:
    watch = Progress([worker], 60.0)
    wait(clock, watch, 50)
    assert watch.idle().seconds == 50
    if sign == "step":
        heartbeat.beat()
    elif sign == "run":
        heartbeat.show_life()
    else:
        worker.spec.log.write_text("x\n")
    wait(clock, watch, 1)
    assert watch.idle().seconds <= 1
    assert hang_of([watch.idle()], 60.0, "here") is None
    wait(clock, watch, 60)
    found = hang_of([watch.idle()], 60.0, "here")
    assert found is not None
    assert "for 60 s (--hang_timeout 60); the ranks' stacks" in found.sentence


def test_short_steps_have_a_minute(clock: Clock, worker: Any) -> None:
    watch = Progress([worker], None)
    train(clock, watch, 2.0, 3)
    taken = wait(clock, watch, 1000)
    assert taken is not None
    assert 60 <= taken < 62


def test_the_first_step_does_not_set_the_limit(clock: Clock, worker: Any) -> None:
    watch = Progress([worker], None)
    train(clock, watch, 500.0, 1)  # imports and compilation
    train(clock, watch, 2.0, 2)
    taken = wait(clock, watch, 1000)
    assert taken is not None
    assert taken < 62


def test_the_limit_follows_the_longest_step(clock: Clock, worker: Any) -> None:
    watch = Progress([worker], None)
    train(clock, watch, 2.0, 3)
    train(clock, watch, 20.0, 1)  # an evaluation between two steps counts as part of a step
    train(clock, watch, 2.0, 3)
    taken = wait(clock, watch, 1000)
    assert taken is not None
    assert 200 <= taken < 202


def test_each_workers_own_steps_are_measured(
    clock: Clock, worker: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Workers of asynchronous jobs step at different times, so somebody steps all the time."""
    other = tmp_path / "other"
    heartbeat.prepare(other)
    spec = SimpleNamespace(**{**vars(worker.spec), "heartbeat": other, "rank": 1})
    workers = [worker, SimpleNamespace(spec=spec, process=worker.process)]
    watch = Progress(workers, None)
    own, second = heartbeat._own(), heartbeat._Writer()
    monkeypatch.setenv("FLEETX_HEARTBEAT", str(other))
    second = heartbeat._Writer()
    for _ in range(3):
        wait(clock, watch, 10)
        own.beat()
        wait(clock, watch, 10)
        second.beat()
    wait(clock, watch, 0.5)
    taken = wait(clock, watch, 1000)
    assert taken is not None
    assert 200 - 1 <= taken < 202


@pytest.mark.parametrize("busy", [True, False])
def test_workers_that_compute_do_not_hang(busy: bool, clock: Clock, worker: Any) -> None:
    watch = Progress([worker], None)
    train(clock, watch, 1.0, 3)
    found = []
    for _ in range(1000):
        clock.used += 0.025 if busy else 0.0
        found.append(wait(clock, watch, 1) is not None)
    assert any(found) is not busy
    if busy:
        assert clock.looks == 0  # nobody is interrupted for it
        assert wait(clock, watch, 1000) is not None  # then the computing ends


def test_an_idle_worker_outside_of_collectives_has_ten_times_as_long(
    clock: Clock, worker: Any
) -> None:
    watch = Progress([worker], None)
    train(clock, watch, 1.0, 3)
    clock.places = {Place.COLLECTIVE, Place.ELSEWHERE}
    taken = wait(clock, watch, 5000)
    assert taken is not None
    assert taken >= 600
    assert clock.looks < 20


@pytest.mark.parametrize(
    "places",
    [
        {Place.ELSEWHERE},  # a script that sleeps or uploads on its own
        {Place.FROZEN},  # somebody has paused all of the job
        {Place.COLLECTIVE, Place.EXEMPT},
        {Place.COLLECTIVE, Place.FROZEN, Place.EXEMPT},
    ],
)
def test_what_is_no_hang(places: set[Place], clock: Clock, worker: Any) -> None:
    watch = Progress([worker], None)
    train(clock, watch, 1.0, 3)
    clock.places = places
    assert wait(clock, watch, 2000) is None
    assert 0 < clock.looks < 40


def test_a_suspended_machine_does_not_count(clock: Clock, worker: Any) -> None:
    watch = Progress([worker], None)
    train(clock, watch, 1.0, 3)
    assert wait(clock, watch, 50) is None
    clock.now += 100_000  # the lid of a laptop was closed
    assert hang_of([watch.idle()], None, "here") is None
    assert wait(clock, watch, 5) is None
    train(clock, watch, 1.0, 3)
    taken = wait(clock, watch, 1000)
    assert taken is not None  # the longest step is one of about 55 s
    assert 500 <= taken < 1000


def test_only_machines_with_workers_decide(clock: Clock, worker: Any) -> None:
    worker.spec.role = "server"
    for timeout in (None, 60.0):
        watch = Progress([worker], timeout)
        wait(clock, watch, 1000)
        assert not watch.idle().counts
        assert hang_of([watch.idle()], timeout, "here") is None


def test_a_worker_that_has_ended_does_not_decide(clock: Clock, worker: Any) -> None:
    watch = Progress([worker], None)
    train(clock, watch, 1.0, 3)
    worker.process.returncode = 0
    assert wait(clock, watch, 1000) is None


def test_a_log_that_was_removed_is_no_progress(clock: Clock, worker: Any) -> None:
    watch = Progress([worker], None)
    train(clock, watch, 1.0, 3)
    worker.spec.log.unlink()
    assert wait(clock, watch, 1000) is not None


class TestSeveralMachines:
    WAITS = Idle(70, 3.0, waits=True)
    AWAY = Idle(70, 3.0, elsewhere=True)
    FROZEN = Idle(80, 2.0, frozen=("rank 3 (process 7)",))
    SERVES = Idle(9999, counts=False)

    @pytest.mark.parametrize(
        "other",
        [
            Idle(1, 3.0, waits=True),  # made progress
            Idle(70, 8.0, waits=True),  # has longer steps
            Idle(70, 3.0, exempt=True),
            AWAY,
            Idle(),  # has not reported yet
        ],
    )
    def test_every_machine_can_prevent_it(self, other: Idle) -> None:
        assert hang_of([self.WAITS, other], None, "here") is None

    def test_somebody_has_to_wait(self) -> None:
        assert hang_of([self.FROZEN, self.AWAY], None, "here") is None
        assert hang_of([self.SERVES], None, "here") is None
        assert hang_of([], None, "here") is None

    def test_zero_turns_it_off(self) -> None:
        assert hang_of([self.WAITS], 0.0, "here") is None

    def test_the_sentence(self) -> None:
        sent = Idle.from_json(self.FROZEN.to_json())
        assert sent == self.FROZEN
        found = hang_of([self.WAITS, sent, self.SERVES], None, "here")
        assert found is not None
        assert found.sentence == (
            "No worker made a step or wrote a line for 70 s (the longest step took 3.0 s; "
            "--hang_timeout sets a fixed limit, 0 none); the ranks' stacks are printed above. "
            "Frozen by a signal: rank 3 (process 7)."
        )


@pytest.fixture
def busy() -> Iterator[int]:
    """A process whose child computes."""
    code = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'while True: pass'])"
    with subprocess.Popen([sys.executable, "-c", code], start_new_session=True) as process:
        yield process.pid
        os.killpg(process.pid, signal.SIGKILL)


def test_the_time_of_children_counts(busy: int) -> None:
    assert wait_until(lambda: cpu_seconds([busy]) > 0.3, "a third of a second of computing")
    assert cpu_seconds([]) == 0
