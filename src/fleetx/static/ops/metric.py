"""Metrics computed inside a program: accuracy, area under the curve, mean overlap."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from fleetx.static.graph.op_registry import detached_op


@detached_op("accuracy", inputs="Out Indices Label", outputs="Accuracy Correct? Total?")
def _accuracy(
    out: torch.Tensor, indices: torch.Tensor, label: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    rows = indices.shape[0]
    correct = (indices == label.reshape(-1, 1)).any(1).sum(0, keepdim=True)
    total = torch.full((1,), rows, dtype=torch.int32, device=out.device)
    return correct.to(torch.float32) / max(rows, 1), correct.to(torch.int32), total


def _count(values: torch.Tensor, buckets: int) -> torch.Tensor:
    """Return how many of the values fall on each bucket number."""
    counts = torch.zeros(buckets, dtype=torch.int64, device=values.device)
    return counts.scatter_add_(0, values, torch.ones_like(values))


def _area(pos: torch.Tensor, neg: torch.Tensor) -> torch.Tensor:
    """Return the area under the curve by trapezoids; zero while one class is missing."""
    pos = pos.flip(0).to(torch.float64).cumsum(0)
    neg = neg.flip(0).to(torch.float64).cumsum(0)
    zero = torch.zeros(1, dtype=torch.float64, device=pos.device)
    before_pos, before_neg = torch.cat([zero, pos[:-1]]), torch.cat([zero, neg[:-1]])
    area = ((neg - before_neg) * (pos + before_pos)).sum() / 2
    whole = pos[-1] * neg[-1]
    return torch.where(whole > 0, area / whole.clamp_min(1), 0.0).reshape(1)


@detached_op(
    "auc",
    inputs="Predict Label StatPos StatNeg InsTagWeight?",
    outputs="AUC StatPosOut=StatPos StatNegOut=StatNeg",
    attrs={"curve": "ROC"},
)
def _auc(
    predict: torch.Tensor,
    label: torch.Tensor,
    stat_pos: torch.Tensor,
    stat_neg: torch.Tensor,
    weight: torch.Tensor | None,
    *,
    num_thresholds: int = 8191,
    slide_steps: int = 1,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Count predictions by bucket and class and integrate.

    With `slide_steps`, a statistic holds the counts of that many last batches, their sum, and the
    number of batches so far; without, it holds the sum over all batches.
    """
    buckets = num_thresholds + 1
    bucket = (predict[:, -1] * num_thresholds).to(torch.int64)
    label = label.reshape(-1)
    # Negative labels belong to neither class: they go to a bucket that is cut off.
    pos = _count(torch.where(label > 0, bucket, buckets), buckets + 1)[:buckets]
    neg = _count(torch.where(label == 0, bucket, buckets), buckets + 1)[:buckets]
    if slide_steps == 0:
        # The statistics of a layer with slide_steps=0 have one entry more, for the step.
        pos = stat_pos.view(-1)[:buckets].add_(pos)
        neg = stat_neg.view(-1)[:buckets].add_(neg)
        return _area(pos, neg), stat_pos, stat_neg
    step = 0 if stat_pos.is_meta else int(stat_pos.view(-1)[-1]) % slide_steps
    sums = []
    for stat, counts in ((stat_pos.view(-1), pos), (stat_neg.view(-1), neg)):
        window = stat[: slide_steps * buckets].view(slide_steps, buckets)
        total = stat[slide_steps * buckets : (slide_steps + 1) * buckets]
        total.add_(counts - window[step])
        window[step] = counts
        stat[-1:].add_(1)
        sums.append(total)
    return _area(*sums), stat_pos, stat_neg


@detached_op(
    "mean_iou",
    inputs="Predictions Labels InWrongs*? InCorrects*? InMeanIou*?",
    outputs="OutMeanIou OutWrong OutCorrect",
)
def _mean_iou(
    predictions: torch.Tensor,
    labels: torch.Tensor,
    in_wrongs: list[torch.Tensor],
    in_corrects: list[torch.Tensor],
    in_mean_iou: list[torch.Tensor],
    *,
    num_classes: int = 2,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    found, true = predictions.reshape(-1).to(torch.int64), labels.reshape(-1).to(torch.int64)
    equal = found == true
    skip = torch.full_like(found, num_classes)
    correct = _count(torch.where(equal, found, skip), num_classes + 1)[:num_classes]
    wrong = _count(torch.where(equal, skip, found), num_classes + 1)[:num_classes]
    wrong = wrong + _count(torch.where(equal, skip, true), num_classes + 1)[:num_classes]
    for more in in_wrongs:
        wrong = wrong + more
    for more in in_corrects:
        correct = correct + more
    union = wrong + correct
    iou = correct.to(torch.float32) / union.clamp_min(1)
    mean = (iou.sum() / (union > 0).sum().clamp_min(1)).reshape(1)
    for more in in_mean_iou:
        mean = mean + more
    return mean, wrong.to(torch.int32), correct.to(torch.int32)


def _precision_recall(states: torch.Tensor) -> torch.Tensor:
    """Return precision, recall and F1: means over the classes, then of all classes together."""
    states = states.double()

    def rates(right: torch.Tensor, wrong: torch.Tensor, missed: torch.Tensor) -> list[torch.Tensor]:
        precision = torch.where(right + wrong > 0, right / (right + wrong), 1.0)
        recall = torch.where(right + missed > 0, right / (right + missed), 1.0)
        return [precision, recall]

    def with_f1(precision: torch.Tensor, recall: torch.Tensor) -> list[torch.Tensor]:
        both = precision + recall
        return [precision, recall, torch.where(both > 0, 2 * precision * recall / both, 0.0)]

    right, wrong, _, missed = states.unbind(1)
    mean = with_f1(*(rate.mean() for rate in rates(right, wrong, missed)))
    total = with_f1(*rates(right.sum(), wrong.sum(), missed.sum()))
    return torch.stack(mean + total)


@detached_op(
    "precision_recall",
    inputs="MaxProbs Indices Labels Weights? StatesInfo?",
    outputs="BatchMetrics AccumMetrics AccumStatesInfo",
)
def precision_recall(
    probabilities: torch.Tensor,
    indices: torch.Tensor,
    labels: torch.Tensor,
    weights: torch.Tensor | None,
    states: torch.Tensor | None,
    *,
    class_number: int = 0,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Count true and false positives and negatives by class, in this batch and so far."""
    found, wanted = indices.reshape(-1).long(), labels.reshape(-1).long()
    ones = torch.ones_like(found, dtype=probabilities.dtype)
    weight = ones if weights is None else weights.reshape(-1)
    is_found = F.one_hot(found, class_number).bool()
    is_wanted = F.one_hot(wanted, class_number).bool()
    kinds = (
        is_found & is_wanted,
        is_found & ~is_wanted,
        ~is_found & ~is_wanted,
        ~is_found & is_wanted,
    )
    batch = torch.stack([(kind * weight[:, None]).sum(0) for kind in kinds], 1)
    total = batch if states is None else batch + states
    return _precision_recall(batch), _precision_recall(total), total
