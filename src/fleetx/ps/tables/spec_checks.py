"""The error for invalid values in a specification, and the checks that raise it."""

from __future__ import annotations

import math
from typing import Any


class SpecError(ValueError):
    """An error for an invalid value in a table's specification."""


def require(condition: bool, problem: str) -> None:
    """Raise a SpecError unless the condition holds."""
    if not condition:
        raise SpecError(problem)


def is_number(value: Any) -> bool:
    """Return whether a value is a finite number."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
