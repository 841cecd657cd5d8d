"""What a run says about op types at its end: listed differences, and types without a case."""

from __future__ import annotations

from collections.abc import Iterator

listed: set[str] = set()
without_a_case: dict[str, str] = {}


def lines() -> Iterator[tuple[str, list[str]]]:
    """Yield sections of the report: title and lines."""
    if listed:
        yield "differences that are listed: Paddle's result is another one", sorted(listed)
    if without_a_case:
        reasons: dict[str, list[str]] = {}
        for name, reason in without_a_case.items():
            reasons.setdefault(reason or "no reason is known", []).append(name)
        rows = [f"{reason}: {' '.join(names)}" for reason, names in reasons.items()]
        yield f"{len(without_a_case)} op types without a case", rows
