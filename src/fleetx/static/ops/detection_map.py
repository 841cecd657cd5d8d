"""The mean average precision of detected boxes, over batches if the states are fed back."""

from __future__ import annotations

from collections import defaultdict

import torch
from torch import Tensor

from fleetx.static.graph.dtypes import VarType
from fleetx.static.graph.op_registry import detached_op
from fleetx.static.ops.boxes import box_overlap
from fleetx.static.shapes.infer_rules import shapes
from fleetx.static.shapes.lod import Lods, WithLod, lengths_of, lod_of, offsets_of

# By class: score and whether the detection was right (and, in a second table, wrong).
Verdicts = dict[int, list[tuple[float, int]]]


def _read(table: Tensor, offsets: list[int]) -> Verdicts:
    rows = table.tolist()
    found: Verdicts = defaultdict(list)
    for label, (start, end) in enumerate(zip(offsets, offsets[1:], strict=False)):
        if end > start:
            found[label] = [(score, int(flag)) for score, flag in rows[start:end]]
    return found


def _write(verdicts: Verdicts, classes: int, like: Tensor) -> WithLod:
    rows = [verdicts.get(label, []) for label in range(classes)]
    flat = [pair for row in rows for pair in row]
    table = torch.tensor(flat, dtype=like.dtype).reshape(-1, 2)
    return WithLod(table, [offsets_of(len(row) for row in rows)])


def _judge_image(
    detections: Tensor,
    truth: Tensor,
    hard: list[bool],
    threshold: float,
    right: Verdicts,
    wrong: Verdicts,
) -> None:
    """Compare the detections of one image with its true boxes, best score first."""
    for label in sorted({int(v) for v in detections[:, 0].tolist()}):
        own = detections[detections[:, 0].int() == label]
        index = (truth[:, 0].int() == label).nonzero().reshape(-1).tolist()
        if not index:
            for score in own[:, 1].tolist():
                right[label].append((score, 0))
                wrong[label].append((score, 1))
            continue
        own = own[own[:, 1].argsort(descending=True, stable=True)]
        overlap = box_overlap(own[:, 2:6].clamp(0, 1), truth[index][:, -4:])
        value, best = overlap.max(1)
        used = set()
        scores = own[:, 1].tolist()
        for score, most, which in zip(scores, value.tolist(), best.tolist(), strict=True):
            hit = most > threshold
            if hit and hard[index[which]]:
                continue
            first = hit and which not in used
            if first:
                used.add(which)
            right[label].append((score, int(first)))
            wrong[label].append((score, int(not first)))


def _average_precision(
    right: list[tuple[float, int]], wrong: list[tuple[float, int]], count: int, kind: str
) -> float:
    """Return the area under precision over recall, or the mean at eleven recalls."""
    order = sorted(right, key=lambda pair: -pair[0]), sorted(wrong, key=lambda pair: -pair[0])
    hits = torch.tensor([flag for _, flag in order[0]]).cumsum(0).to(torch.float32)
    misses = torch.tensor([flag for _, flag in order[1]]).cumsum(0).to(torch.float32)
    precision, recall = hits / (hits + misses), hits / count
    if kind == "11point":
        best = [precision[recall >= level / 10.0] for level in range(11)]
        return sum(float(part.max()) if len(part) else 0.0 for part in best) / 11
    steps = torch.diff(recall, prepend=torch.zeros(1)).abs()
    return float((precision * torch.where(steps > 1e-6, steps, 0.0)).sum())


@detached_op(
    "detection_map",
    inputs="DetectRes Label HasState? PosCount? TruePos? FalsePos?",
    outputs="AccumPosCount AccumTruePos AccumFalsePos MAP",
    infer=shapes(
        "DetectRes",
        lambda op, x: {
            "MAP": ((1,), x.dtype),
            "AccumPosCount": ((op.attr("class_num"), 1), VarType.INT32),
            "AccumTruePos": ((-1, 2), x.dtype, 1),
            "AccumFalsePos": ((-1, 2), x.dtype, 1),
        },
    ),
)
def detection_map(
    detections: Tensor,
    label: Tensor,
    has_state: Tensor | None,
    pos_count: Tensor | None,
    true_pos: Tensor | None,
    false_pos: Tensor | None,
    *,
    class_num: int = 0,
    background_label: int = 0,
    overlap_threshold: float = 0.5,
    evaluate_difficult: bool = True,
    ap_type: str = "integral",
    lod: Lods,
) -> tuple[Tensor, WithLod, WithLod, Tensor]:
    """Return counts and verdicts by class so far, and the mean average precision."""
    counts: dict[int, int] = defaultdict(int)
    right: Verdicts = defaultdict(list)
    wrong: Verdicts = defaultdict(list)
    if has_state is not None and int(has_state.reshape(-1)[0]) and pos_count is not None:
        counts.update(enumerate(pos_count.reshape(-1).tolist()))
        if true_pos is not None and false_pos is not None:
            right = _read(true_pos, lod_of(lod, "TruePos", "detection_map")[0])
            wrong = _read(false_pos, lod_of(lod, "FalsePos", "detection_map")[0])
    found = detections.split(lengths_of(lod_of(lod, "DetectRes", "detection_map")[0]))
    truths = label.split(lengths_of(lod_of(lod, "Label", "detection_map")[0]))
    for own, truth in zip(found, truths, strict=True):
        marked = truth.shape[1] == 6 and not evaluate_difficult
        hard = (truth[:, 1].abs() >= 1e-6).tolist() if marked else [False] * len(truth)
        for value, is_hard in zip(truth[:, 0].tolist(), hard, strict=True):
            if not is_hard:
                counts[int(value)] += 1
        _judge_image(own, truth, hard, overlap_threshold, right, wrong)
    values = []
    for value in sorted(counts):
        # Paddle compares the number of boxes, not the class, with the background's label.
        if counts[value] == background_label:
            continue
        known = value in right
        values.append(
            _average_precision(right[value], wrong[value], counts[value], ap_type) if known else 0.0
        )
    mean = torch.tensor([sum(values) / len(values) if values else 0.0], dtype=detections.dtype)
    totals = torch.tensor([[counts.get(c, 0)] for c in range(class_num)], dtype=torch.int32)
    state = _write(right, class_num, detections), _write(wrong, class_num, detections)
    return totals, *state, mean
