"""Slow modules are at the beginning of each process's share, and nothing else moves."""

from __future__ import annotations

from typing import Any

import pytest

import shares


class Item:
    """A test of a module, as pytest collects it."""

    def __init__(self, nodeid: str, slow: bool) -> None:
        self.nodeid, self._slow = nodeid, slow

    def get_closest_marker(self, name: str) -> bool:
        return self._slow and name == "slow"


def collected(*modules: tuple[str, int, bool]) -> list[Any]:
    """Return the tests of modules, of which the last one may be slow."""
    return [
        Item(f"{name}.py::test_{number}", slow and number == count - 1)
        for name, count, slow in modules
        for number in range(count)
    ]


def test_each_process_begins_with_slow_modules() -> None:
    items = collected(("a", 3, False), ("b", 2, True), ("c", 3, False), ("d", 2, True))
    ordered = [item.nodeid[0] for item in shares.slow_modules_first(items, 2)]
    assert "".join(ordered) == "bbaaaddccc"


@pytest.mark.parametrize("processes", [1, 2, 3, 7])
def test_every_test_is_there_once(processes: int) -> None:
    items = collected(*((name, 1 + i % 4, i % 3 == 0) for i, name in enumerate("abcdefgh")))
    ordered = shares.slow_modules_first(items, processes)
    assert len(ordered) == len(items)
    assert set(ordered) == set(items)


def test_all_are_slow() -> None:
    items = collected(("a", 5, True), ("b", 1, True))
    assert shares.slow_modules_first(items, 2) == items
