"""Background work in slices: it computes the same, and ends when it is stopped."""

from __future__ import annotations

import contextlib
import sys
import threading
import time

import pytest

from fleetx.serving.paced import SLICE, Pace, Stopped


def work(limit: int) -> int:
    return sum(map(abs, range(limit)))


def test_work_rests_and_computes_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    rests = []
    monkeypatch.setattr(time, "sleep", rests.append)
    begun = time.thread_time()
    with Pace().kept():
        found = work(1000)
        while time.thread_time() - begun < 50 * SLICE:
            assert work(1000) == found
    assert found == 499500
    assert rests
    assert 0 < min(rests) <= max(rests) <= 0.01


def test_the_previous_profiler_is_restored_after_an_error() -> None:
    def profiler(*_: object) -> None:
        pass

    sys.setprofile(profiler)
    try:
        with pytest.raises(ValueError, match="bad file"), Pace().kept():
            raise ValueError("bad file")
        assert sys.getprofile() is profiler
    finally:
        sys.setprofile(None)


def test_endless_work_ends_when_it_is_stopped() -> None:
    pace, ended, begun = Pace(), [], threading.Event()

    def endless() -> None:
        try:
            with pace.kept():
                while True:
                    with contextlib.suppress(Exception):  # handlers of the work do not catch it
                        begun.set()
                        work(1000)
        except Stopped:
            ended.append(sys.getprofile())

    thread = threading.Thread(target=endless)
    thread.start()
    begun.wait()
    assert not ended
    pace.stop()
    thread.join()
    assert ended == [None]
