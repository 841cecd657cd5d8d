"""Measures: accuracy inside a program, and classes that sum up over batches."""

from fleetx.static.layers import accuracy as _accuracy
from fleetx.static.variable import Variable
from paddle._coverage import missing
from paddle.metric.metrics import *  # noqa: F403
from paddle.metric.metrics import __all__ as _classes

__all__ = [*_classes, "accuracy"]


def accuracy(
    input: Variable,
    label: Variable,
    k: int = 1,
    correct: Variable | None = None,
    total: Variable | None = None,
    name: str | None = None,
) -> Variable:
    """Return the share of rows whose label is among the k largest entries."""
    return _accuracy(input=input, label=label, k=k, correct=correct, total=total)


__getattr__ = missing(__name__)
