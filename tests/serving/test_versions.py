"""A new version is loaded beside the old one: at a slow pace, and only while the server runs."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fleetx.serving import paced
from fleetx.serving.engines import Engine
from fleetx.serving.model import ServedModel
from fleetx.serving.tensor_spec import TensorSpec
from fleetx.serving.versions import Versions

SPEC = TensorSpec("x", (-1, 2), "float32")


def made(path: Path) -> ServedModel:
    return ServedModel(path, Engine((SPEC,), (SPEC,), (), lambda values: values), version=path.name)


def follow(folder: Path, load: Any, until: Any) -> list[Any]:
    """Serve version 1 while version 2 appears; return what `until` awaited gives."""

    async def run() -> list[Any]:
        versions = Versions(folder, load, 0.01)
        old = versions.first()
        (folder / "2").mkdir()
        taken: asyncio.Queue[Any] = asyncio.Queue()
        task = asyncio.ensure_future(
            versions.follow(lambda: old, lambda *new: taken.put_nowait(new))
        )
        found = await until(taken)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return [found, task.cancelled()]

    (folder / "1").mkdir()
    return asyncio.run(run())


def test_a_server_that_stops_does_not_wait_for_a_new_version(tmp_path: Path) -> None:
    begun = threading.Event()

    def load(path: Path) -> ServedModel:
        while path.name == "2":
            begun.set()
        return made(path)

    async def until(_: Any) -> bool:
        return await asyncio.to_thread(begun.wait, 60)

    assert follow(tmp_path, load, until) == [True, True]


def test_models_compute_with_as_many_threads_after_a_takeover(tmp_path: Path) -> None:
    usual = torch.get_num_threads()
    torch.set_num_threads(3)
    seen = []

    def load(path: Path) -> ServedModel:
        seen.append(torch.get_num_threads())
        return made(path)

    async def until(taken: Any) -> int:
        (model, reason) = await taken.get()
        assert (model.version, reason) == ("2", None)
        return await asyncio.to_thread(torch.get_num_threads)  # a thread that has just started

    try:
        assert follow(tmp_path, load, until) == [3, True]
        assert seen == [3, 1]
    finally:
        torch.set_num_threads(usual)


@pytest.fixture
def rests(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[float]]:
    found: list[float] = []
    monkeypatch.setattr(paced.time, "sleep", found.append)
    yield found
    assert sys.getprofile() is None


def test_work_rests_after_every_slice(rests: list[float]) -> None:
    pace, began = paced.Pace(), time.thread_time()
    with pace.kept():
        while time.thread_time() - began < 50 * paced.SLICE:
            np.zeros(8)
        worked = time.thread_time() - began
    assert sum(rests) > paced.REST * worked / 2
    assert max(rests) <= 0.01


def test_work_ends_when_it_is_stopped(rests: list[float]) -> None:
    pace = paced.Pace()
    pace.stop()

    def work() -> None:
        with pace.kept():
            while True:
                np.zeros(8)

    with pytest.raises(paced.Stopped):
        work()
    assert not rests
