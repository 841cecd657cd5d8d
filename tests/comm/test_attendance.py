"""Workers that join, stay away or join late: all reach the same decision, and none hangs."""

from __future__ import annotations

import datetime
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch.distributed as dist

from fleetx.comm.attendance import Register
from waiting import LIMIT

SIZE = 3


@pytest.fixture
def registers() -> Iterator[list[Register]]:
    """The register as each of three workers has it, by a connection of its own."""
    limit = datetime.timedelta(seconds=LIMIT)
    stores = [dist.TCPStore("127.0.0.1", 0, is_master=True, timeout=limit)]
    for _ in range(SIZE - 1):
        stores.append(dist.TCPStore("127.0.0.1", stores[0].port, timeout=limit))
    found = [Register(store, rank, SIZE) for rank, store in enumerate(stores)]
    yield found
    found.clear()
    while stores:
        stores.pop()  # clients before the one that listens


def together(registers: list[Register], points: list[str], seconds: float = LIMIT) -> list[bool]:
    """Let workers call at the same time."""
    start = threading.Barrier(len(points))

    def call(register: Register, point: str) -> bool:
        start.wait(LIMIT)
        return register.all_attend(point, seconds)

    with ThreadPoolExecutor(SIZE) as pool:
        return list(pool.map(call, registers, points))


def test_all_come_again_and_again(registers: list[Register]) -> None:
    for point in ("a", "a", "b"):
        assert together(registers, [point] * SIZE) == [True] * SIZE


def test_some_come_and_the_last_is_late(registers: list[Register]) -> None:
    assert together(registers[:2], ["a", "a"], 0.05) == [False, False]
    assert not registers[2].all_attend("a", LIMIT)  # without waiting
    assert together(registers, ["a"] * SIZE) == [True] * SIZE  # a new round


def test_a_worker_alone_tries_again(registers: list[Register]) -> None:
    assert not registers[1].all_attend("a", 0)
    assert not registers[1].all_attend("a", 0)
    assert together(registers, ["b"] * SIZE) == [True] * SIZE


def test_workers_at_different_points_do_not_meet(registers: list[Register]) -> None:
    assert together(registers, ["a", "a", "b"], 0.05) == [False] * SIZE
    assert together(registers, ["c"] * SIZE) == [True] * SIZE
