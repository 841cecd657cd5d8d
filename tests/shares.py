"""Which tests each process of pytest begins with: slow ones."""

from __future__ import annotations

import pytest


def slow_modules_first(items: list[pytest.Item], processes: int) -> list[pytest.Item]:
    """Return the tests with slow modules at the beginning of each process's share.

    Then no process ends long after the others, and what they take from each other in the end is
    cheap. Otherwise the order stays; tests of a module stay together.
    """
    modules: dict[str, list[pytest.Item]] = {}
    for item in items:
        modules.setdefault(item.nodeid.partition("::")[0], []).append(item)
    slow: list[list[pytest.Item]] = [[] for _ in range(processes)]
    quick: list[pytest.Item] = []
    for tests in modules.values():
        is_slow = any(test.get_closest_marker("slow") for test in tests)
        (min(slow, key=len) if is_slow else quick).extend(tests)
    ordered: list[pytest.Item] = []
    for number, first in enumerate(slow):
        # xdist gives each process an equal part of the list to begin with.
        share = (len(items) - len(ordered)) // (processes - number)
        rest = max(0, share - len(first))
        ordered += [*first, *quick[:rest]]
        del quick[:rest]
    return [*ordered, *quick]
