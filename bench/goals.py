"""Goals of benchmarks and their results, for figures that are not from a contest."""

from __future__ import annotations

from typing import Any


def goal(what: str, value: float, limit: float, *, at_least: bool) -> dict[str, Any]:
    """Return a goal and whether it was reached, rounded to two decimals."""
    reached = round(value, 2) >= limit if at_least else round(value, 2) <= limit
    return {"what": what, "value": value, "goal": limit, "at_least": at_least, "reached": reached}


def show(goals: list[dict[str, Any]]) -> None:
    """Print a line per goal."""
    for row in goals:
        sign = "at least" if row["at_least"] else "at most"
        missed = "" if row["reached"] else ", missed"
        print(f"{row['what']}: {row['value']:.2f} ({sign} {row['goal']:g}{missed})")
