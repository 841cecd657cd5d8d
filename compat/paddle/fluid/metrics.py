"""Measures kept outside of programs."""

from fleetx.static.metrics import (
    Accuracy,
    Auc,
    ChunkEvaluator,
    CompositeMetric,
    EditDistance,
    MetricBase,
    Precision,
    Recall,
)
from paddle._coverage import missing

__all__ = [
    "Accuracy",
    "Auc",
    "ChunkEvaluator",
    "CompositeMetric",
    "EditDistance",
    "MetricBase",
    "Precision",
    "Recall",
]

__getattr__ = missing(__name__)
