"""A weighted running average, kept in Python."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np


class WeightedAverage:
    """The weighted average of all values added since the last reset."""

    def __init__(self) -> None:
        warnings.warn(
            "WeightedAverage is deprecated; use fluid.metrics instead.",
            DeprecationWarning,
            stacklevel=2,
        )
        self.reset()

    def reset(self) -> None:
        """Reset the average."""
        self.numerator: Any = None
        self.denominator: Any = None

    def add(self, value: Any, weight: Any) -> None:
        """Add a number or array with a weight."""
        for name, number in (("value", value), ("weight", weight)):
            if not isinstance(number, np.ndarray | np.number | int | float):
                raise ValueError(f"{name} of WeightedAverage.add must be a number or an array.")
        if self.numerator is None:
            self.numerator, self.denominator = value * weight, weight
        else:
            self.numerator += value * weight
            self.denominator += weight

    def eval(self) -> Any:
        """Return the average."""
        if self.numerator is None:
            raise ValueError("WeightedAverage has no data; call add() first.")
        return self.numerator / self.denominator
