"""Metrics accumulated in Python over many batches, with the interface of `fluid.metrics`.

`update` takes the values that a program computed for a batch, `eval` returns the value over all
batches since `reset`. The counting is in free functions, which `metrics_of_2x.py` shares.
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

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


def check_array(value: Any, name: str) -> Array:
    """Reject anything but an array."""
    if not isinstance(value, np.ndarray | np.generic):
        raise ValueError(f"The '{name}' must be a numpy ndarray, not {type(value).__name__}.")
    return np.asarray(value)


def _check_number(value: Any, name: str, *, array: bool = False) -> Any:
    kinds = (int, float, np.generic, np.ndarray)
    single = array or np.size(value) == 1
    if not isinstance(value, kinds) or not single:
        more = " or a numpy ndarray" if array else ""
        raise ValueError(f"The '{name}' must be a number{more}, not {value!r}.")
    return value


def add_decisions(metric: Any, errors: str, preds: Array, labels: Array) -> None:
    """Count true positives, and false positives ("fp") or negatives ("fn"), in a metric."""
    rows = labels.shape[0]
    found = np.rint(preds[:rows]).astype("int64").reshape(rows, -1)[:, 0] == 1
    true = np.asarray(labels).reshape(rows, -1)[:, 0] == 1
    wrong = found & ~true if errors == "fp" else ~found & true
    metric.tp += int(np.sum(found & true))
    setattr(metric, errors, getattr(metric, errors) + int(np.sum(wrong)))


def bucket_counts(preds: Array, labels: Array, num_thresholds: int) -> tuple[Array, Array]:
    """Return the numbers of positive and negative rows per bucket of probability."""
    bucket = (np.asarray(preds)[:, 1].astype("float64") * num_thresholds).astype("int64")
    if bucket.size and (bucket.min() < 0 or bucket.max() > num_thresholds):
        raise ValueError("the predictions of Auc must be probabilities between 0 and 1.")
    positive = np.asarray(labels).reshape(-1).astype(bool)
    size = num_thresholds + 1
    return (
        np.bincount(bucket[positive], minlength=size).astype("float64"),
        np.bincount(bucket[~positive], minlength=size).astype("float64"),
    )


def area_under_curve(pos: Array, neg: Array) -> float:
    """Return the area under the ROC curve (trapezoidal rule); 0 if one class is missing."""
    pos, neg = np.cumsum(pos[::-1]), np.cumsum(neg[::-1])
    if pos[-1] == 0 or neg[-1] == 0:
        return 0.0
    steps = np.diff(neg, prepend=0.0)
    heights = (pos + np.concatenate([[0.0], pos[:-1]])) / 2
    return float(np.sum(steps * heights) / pos[-1] / neg[-1])


def ratio(part: float, whole: float) -> float:
    """Return part / whole, 0 for an empty whole."""
    return float(part) / whole if whole else 0.0


class MetricBase:
    """Base of metrics: attributes without a leading underscore are the state."""

    def __init__(self, name: str | None) -> None:
        self._name = type(self).__name__ if name is None else str(name)

    def __str__(self) -> str:
        """Return the metric's name."""
        return self._name

    def _states(self) -> dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if not k.startswith("_")}

    def reset(self) -> None:
        """Reset the state."""
        for key, value in self._states().items():
            if isinstance(value, int | float):
                setattr(self, key, type(value)(0))
            elif isinstance(value, np.ndarray | np.generic):
                setattr(self, key, np.zeros_like(value))
            else:
                setattr(self, key, None)

    def get_config(self) -> dict[str, Any]:
        """Return the name and a copy of the state."""
        return {"name": self._name, "states": copy.deepcopy(self._states())}

    def update(self, preds: Any, labels: Any) -> None:
        """Update the state with a batch."""
        raise NotImplementedError(f"{type(self).__name__} does not define update().")

    def eval(self) -> Any:
        """Return the value over all batches."""
        raise NotImplementedError(f"{type(self).__name__} does not define eval().")


class CompositeMetric(MetricBase):
    """Several metrics of the same predictions and labels."""

    def __init__(self, name: str | None = None) -> None:
        super().__init__(name)
        self._metrics: list[MetricBase] = []

    def add_metric(self, metric: MetricBase) -> None:
        """Add a metric."""
        if not isinstance(metric, MetricBase):
            raise ValueError(f"a metric must be a MetricBase, not {type(metric).__name__}.")
        self._metrics.append(metric)

    def update(self, preds: Any, labels: Any) -> None:
        """Update every metric with a batch."""
        for metric in self._metrics:
            metric.update(preds, labels)

    def eval(self) -> list[Any]:
        """Return the metrics' values in order."""
        return [metric.eval() for metric in self._metrics]


class _Decisions(MetricBase):
    """The fraction of true positives among them and one kind of errors."""

    _errors: str  # the attribute that counts them

    def __init__(self, name: str | None = None) -> None:
        super().__init__(name)
        self.tp = 0
        setattr(self, self._errors, 0)

    def update(self, preds: Any, labels: Any) -> None:
        """Update with probabilities and 0/1 labels."""
        preds = check_array(preds, "preds")
        add_decisions(self, self._errors, preds, check_array(labels, "labels"))

    def eval(self) -> float:
        """Return the share."""
        return ratio(self.tp, self.tp + getattr(self, self._errors))


class Precision(_Decisions):
    """The fraction of true positives among predicted positives."""

    _errors = "fp"


class Recall(_Decisions):
    """The fraction of positives that are predicted."""

    _errors = "fn"


class Accuracy(MetricBase):
    """The weighted mean of the accuracies of batches."""

    def __init__(self, name: str | None = None) -> None:
        super().__init__(name)
        self.value: Any = 0.0
        self.weight: Any = 0.0

    def update(self, value: Any, weight: Any) -> None:
        """Update with a batch's accuracy and its weight (usually its size)."""
        _check_number(value, "value", array=True)
        _check_number(weight, "weight")
        if weight < 0:
            raise ValueError(f"The 'weight' must not be negative, but is {weight}.")
        self.value += value * weight
        self.weight += weight

    def eval(self) -> Any:
        """Return the mean."""
        if self.weight == 0:
            raise ValueError(
                "Accuracy has no data: call update() with the result of layers.accuracy first."
            )
        return self.value / self.weight


class ChunkEvaluator(MetricBase):
    """Precision, recall and F1 of chunks, from the counts of batches."""

    def __init__(self, name: str | None = None) -> None:
        super().__init__(name)
        self.num_infer_chunks: Any = 0
        self.num_label_chunks: Any = 0
        self.num_correct_chunks: Any = 0

    def update(  # type: ignore[override]  # takes three counts, as Fluid's does
        self, num_infer_chunks: Any, num_label_chunks: Any, num_correct_chunks: Any
    ) -> None:
        """Update with a batch's numbers of predicted, true and correctly predicted chunks."""
        for key, value in (
            ("num_infer_chunks", num_infer_chunks),
            ("num_label_chunks", num_label_chunks),
            ("num_correct_chunks", num_correct_chunks),
        ):
            _check_number(value, key, array=True)
            setattr(self, key, getattr(self, key) + np.asarray(value).sum().item())

    def eval(self) -> tuple[float, float, float]:
        """Return precision, recall and F1."""
        precision = ratio(self.num_correct_chunks, self.num_infer_chunks)
        recall = ratio(self.num_correct_chunks, self.num_label_chunks)
        return precision, recall, ratio(2 * precision * recall, precision + recall)


class EditDistance(MetricBase):
    """The mean edit distance, and the fraction of sequences with errors."""

    def __init__(self, name: str | None = None) -> None:
        super().__init__(name)
        self.total_distance = 0.0
        self.seq_num = 0
        self.instance_error = 0

    def update(self, distances: Any, seq_num: Any) -> None:
        """Update with a batch's distances and its number of sequences."""
        distances = check_array(distances, "distances")
        count = int(np.asarray(_check_number(seq_num, "seq_num")).item())
        self.seq_num += count
        self.instance_error += count - int(np.sum(distances == 0))
        self.total_distance += float(np.sum(distances))

    def eval(self) -> tuple[float, float]:
        """Return the mean distance and the fraction of sequences with errors."""
        if self.seq_num == 0:
            raise ValueError(
                "EditDistance has no data: call update() with the results of "
                "layers.edit_distance first."
            )
        return self.total_distance / self.seq_num, self.instance_error / self.seq_num


class Auc(MetricBase):
    """The area under the ROC curve, from counts in buckets of probability."""

    def __init__(
        self, name: str | None = None, curve: str = "ROC", num_thresholds: int = 4095
    ) -> None:
        super().__init__(name)
        self._curve = curve
        self._num_thresholds = num_thresholds
        self.reset()

    def reset(self) -> None:
        """Reset the state."""
        self._positive = np.zeros(self._num_thresholds + 1)
        self._negative = np.zeros(self._num_thresholds + 1)

    @property
    def _stat_pos(self) -> list[int]:
        """Paddle's name of the counts of label 1 by bucket."""
        return [int(count) for count in self._positive]

    @property
    def _stat_neg(self) -> list[int]:
        """Paddle's name of the counts of label 0 by bucket."""
        return [int(count) for count in self._negative]

    def update(self, preds: Any, labels: Any) -> None:
        """Update with probabilities [batch, 2] and 0/1 labels."""
        labels = check_array(labels, "labels")
        pos, neg = bucket_counts(check_array(preds, "predictions"), labels, self._num_thresholds)
        self._positive += pos
        self._negative += neg

    def eval(self) -> float:
        """Return the area."""
        return area_under_curve(self._positive, self._negative)
