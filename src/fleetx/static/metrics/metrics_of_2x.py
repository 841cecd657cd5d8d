"""Metrics with the interface of `paddle.metric`: compute in the program, update in Python."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import Any

import numpy as np

from fleetx.static import layers
from fleetx.static.graph.dtypes import VarType
from fleetx.static.graph.variable import Variable
from fleetx.static.layers.metric import accuracy as _accuracy_layer
from fleetx.static.metrics.metrics_of_1x import (
    add_decisions,
    area_under_curve,
    bucket_counts,
    check_array,
    ratio,
)

__all__ = ["Accuracy", "Auc", "Metric", "Precision", "Recall", "accuracy"]


class Metric(metaclass=abc.ABCMeta):
    """Base of metrics: `compute` appends ops, `update` takes their values, `accumulate` returns."""

    @abc.abstractmethod
    def reset(self) -> None:
        """Reset the state."""

    @abc.abstractmethod
    def update(self, *args: Any) -> Any:
        """Update the state with a batch."""

    @abc.abstractmethod
    def accumulate(self) -> Any:
        """Return the value over all batches."""

    @abc.abstractmethod
    def name(self) -> Any:
        """Return the metric's name."""

    def compute(self, *args: Any) -> Any:
        """Return the arguments of `update` for a batch, by default all of it."""
        return args


class Accuracy(Metric):
    """The fraction of rows whose label is among their k highest scores, for each k."""

    def __init__(
        self, topk: Sequence[int] = (1,), name: str | None = None, *args: Any, **kwargs: Any
    ) -> None:
        self.topk = tuple(topk)
        self.maxk = max(topk)
        base = name or "acc"
        self._name = [f"{base}_top{k}" for k in self.topk] if self.maxk != 1 else [base]
        self.reset()

    def compute(self, pred: Variable, label: Variable, *args: Any) -> Variable:
        """Append ops that compute, for each of the highest scores, whether it is the label's."""
        _, best = layers.topk(pred, k=self.maxk)
        if len(label.shape) == 1 or (len(label.shape) == 2 and label.shape[-1] == 1):
            label = layers.reshape(label, [-1, 1])
        elif label.shape[-1] != 1:
            label = layers.unsqueeze(layers.argmax(label, axis=-1), [-1])
        return layers.cast(layers.equal(best, layers.cast(label, "int64")), "float32")

    def update(self, correct: Any, *args: Any) -> Any:
        """Update with the result of `compute`; return the batch's accuracy."""
        correct = np.asarray(correct)
        rows = int(np.prod(correct.shape[:-1]))
        found = []
        for i, k in enumerate(self.topk):
            hits = float(correct[..., :k].sum())
            self.total[i] += hits
            self.count[i] += rows
            found.append(ratio(hits, rows))
        return found[0] if len(found) == 1 else found

    def reset(self) -> None:
        """Reset the state."""
        self.total = [0.0] * len(self.topk)
        self.count = [0] * len(self.topk)

    def accumulate(self) -> Any:
        """Return the accuracy, or one for each k."""
        found = [ratio(t, c) for t, c in zip(self.total, self.count, strict=True)]
        return found[0] if len(found) == 1 else found

    def name(self) -> list[str]:
        """Return one name for each k."""
        return self._name


class _Named(Metric):
    _name: str

    def name(self) -> str:
        """Return the metric's name."""
        return self._name


class _Decisions(_Named):
    """The fraction of true positives among them and one kind of errors."""

    _errors: str  # the attribute that counts them

    def update(self, preds: Any, labels: Any) -> None:
        """Update with probabilities and 0/1 labels."""
        preds = check_array(preds, "preds")
        if self._errors == "fp":  # unlike in fluid.metrics, 0.5 is positive
            preds = np.floor(preds + 0.5)
        add_decisions(self, self._errors, preds, check_array(labels, "labels"))

    def reset(self) -> None:
        """Reset the state."""
        self.tp = 0
        setattr(self, self._errors, 0)

    def accumulate(self) -> float:
        """Return the share."""
        return ratio(self.tp, self.tp + getattr(self, self._errors))


class Precision(_Decisions):
    """The fraction of true positives among predicted positives."""

    _errors = "fp"

    def __init__(self, name: str = "precision", *args: Any, **kwargs: Any) -> None:
        self._name = name
        self.reset()


class Recall(_Decisions):
    """The fraction of positives that are predicted."""

    _errors = "fn"

    def __init__(self, name: str = "recall", *args: Any, **kwargs: Any) -> None:
        self._name = name
        self.reset()


class Auc(_Named):
    """The area under the ROC curve, from counts in buckets of probability."""

    def __init__(
        self,
        curve: str = "ROC",
        num_thresholds: int = 4095,
        name: str = "auc",
        *args: Any,
        **kwargs: Any,
    ) -> None:
        self._curve, self._num_thresholds, self._name = curve, num_thresholds, name
        self.reset()

    def update(self, preds: Any, labels: Any) -> None:
        """Update with probabilities [batch, 2] and 0/1 labels."""
        labels = check_array(labels, "labels")
        pos, neg = bucket_counts(check_array(preds, "preds"), labels, self._num_thresholds)
        self._stat_pos += pos
        self._stat_neg += neg

    def reset(self) -> None:
        """Reset the state."""
        self._stat_pos = np.zeros(self._num_thresholds + 1)
        self._stat_neg = np.zeros(self._num_thresholds + 1)

    def accumulate(self) -> float:
        """Return the area."""
        return area_under_curve(self._stat_pos, self._stat_neg)


def accuracy(
    input: Variable,
    label: Variable,
    k: int = 1,
    correct: Variable | None = None,
    total: Variable | None = None,
    name: str | None = None,
) -> Variable:
    """Append ops that compute the fraction of rows whose label is among the k highest scores."""
    if label.dtype == VarType.INT32:
        label = layers.cast(label, "int64")
    return _accuracy_layer(input, label, k, correct, total)
