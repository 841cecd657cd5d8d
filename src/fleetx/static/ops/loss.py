"""Cross entropies: of probabilities, of logits, with class numbers or distributions as labels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from fleetx.static.graph.dtypes import VarType
from fleetx.static.graph.op_registry import Long, op
from fleetx.static.ops.reshape import x_shape
from fleetx.static.shapes.infer_rules import (
    Rule,
    Shape,
    checked,
    input_var,
    same_as,
    set_output,
)
from fleetx.static.shapes.infer_shape import infer_by_running

_FLOATS = (VarType.FP32, VarType.FP64)


def _infer_softmax(op: Any, block: Any) -> None:
    """Infer without meta tensors, whose kernels import sympy: it takes a third of a second."""
    x = input_var(op, block, "X")
    dims = 0 if x is None else len(x.shape)
    usual = dims > 0 and -dims <= op.attr("axis") < dims and x.dtype in _FLOATS
    (same_as() if usual else infer_by_running)(op, block)


@op(
    "softmax",
    attrs={"use_cudnn": False, "data_format": "AnyLayout", "is_test": False},
    infer=_infer_softmax,
)
def _softmax(x: torch.Tensor, *, axis: int = -1) -> torch.Tensor:
    return torch.softmax(x, axis)


op("log_softmax")(lambda x, *, axis=-1: torch.log_softmax(x, axis))


def _pick(x: torch.Tensor, label: torch.Tensor, ignore_index: int) -> torch.Tensor:
    """Return each row's probability of its class, and one where the label is to be ignored."""
    flat = label.dim() == x.dim() - 1
    if flat:
        label = label.unsqueeze(-1)
    if label.dtype != torch.int64:
        label = label.to(torch.int64)
    ignored = label == ignore_index
    picked = x.gather(-1, label.masked_fill(ignored, 0)).masked_fill(ignored, 1.0)
    return picked.squeeze(-1) if flat else picked


def _one_label_each(op: Any, block: Any) -> str | None:
    x, label = input_var(op, block, "X"), input_var(op, block, "Label")
    if x is None or label is None or len(x.shape) != len(label.shape):
        return None
    classes, last = x.shape[-1], label.shape[-1]
    if op.attrs.get("soft_label"):
        wrong = classes > 0 and last > 0 and classes != last
        return "soft labels must have one share per class." if wrong else None
    return "the last dimension of Label must be 1." if last > 1 else None


def _infer_class_loss(scores: str, loss: str, **others: Callable[[Shape], Shape]) -> Rule:
    """Return the rule of a loss with one label per row: as the scores, with a last size of 1.

    `others` are further outputs, by the shape of the scores. Soft labels, and labels with fewer
    dimensions, are run on meta tensors.
    """

    def rule(op: Any, block: Any) -> None:
        x, label = input_var(op, block, scores), input_var(op, block, "Label")
        usual = x is not None and label is not None and len(x.shape) > 1 and x.dtype in _FLOATS
        usual = usual and label.dtype in (VarType.INT64, VarType.INT32)
        usual = usual and label.shape == (*x.shape[:-1], 1) and 0 not in x.shape
        usual = usual and not op.attrs.get("soft_label")
        if not usual or op.attrs.get("axis", -1) not in (-1, len(x.shape) - 1):
            return infer_by_running(op, block)
        set_output(op, block, loss, label.shape, x.dtype)
        for slot, shape in others.items():
            set_output(op, block, slot, shape(x.shape), x.dtype)
        return None

    return rule


@op(
    "cross_entropy2",
    infer=checked(
        _one_label_each,
        _infer_class_loss("X", "Y", XShape=lambda x: (0, *x), MatchX=lambda x: (*x[:-1], 1)),
    ),
    inputs="X Label!",
    outputs="Y XShape? MatchX?",
)
def _cross_entropy2(
    x: torch.Tensor, label: torch.Tensor, *, ignore_index: int = -100
) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor]:
    picked = _pick(x, label, ignore_index)
    matched = picked.detach().reshape(*x.shape[:-1], 1)
    ignored = (label == ignore_index).view_as(matched)
    return picked.log().neg_(), x_shape(x), matched.masked_fill(ignored, 0.0)


@op("cross_entropy", infer=checked(_one_label_each), inputs="X Label!", outputs="Y")
def _cross_entropy(
    x: torch.Tensor, label: torch.Tensor, *, soft_label: bool = False, ignore_index: int = -100
) -> torch.Tensor:
    if soft_label:
        # log(0) counts as a very large number, so that 0 * log(0) is 0
        return -(label * x.log().clamp_min(-1e20)).sum(-1, keepdim=True)
    return _pick(x, label, ignore_index).log().neg_()


@op(
    "softmax_with_cross_entropy",
    inputs="Logits Label!",
    outputs="Softmax? Loss",
    attrs={"numeric_stable_mode": True},
    infer=_infer_class_loss("Logits", "Loss", Softmax=lambda x: x),
)
def _softmax_with_cross_entropy(
    logits: torch.Tensor,
    label: torch.Tensor,
    *,
    soft_label: bool = False,
    use_softmax: bool = True,
    ignore_index: int = -100,
    axis: int = -1,
) -> tuple[torch.Tensor, torch.Tensor]:
    log_prob = torch.log_softmax(logits, axis) if use_softmax else logits.log()
    # Gradients flow through the loss only, as in Paddle.
    softmax = log_prob.detach().exp() if use_softmax else logits.detach()
    if soft_label:
        return softmax, -(label * log_prob).sum(axis, keepdim=True)
    axis = axis % logits.dim()
    if label.dim() == logits.dim():
        label = label.squeeze(axis)
    if label.dtype != torch.int64:
        label = label.to(torch.int64)
    if axis == 1 or logits.dim() == 1:
        loss = F.nll_loss(log_prob, label, reduction="none", ignore_index=ignore_index)
    else:
        classes = logits.shape[axis]
        rows = log_prob.movedim(axis, -1).reshape(-1, classes)
        loss = F.nll_loss(rows, label.reshape(-1), reduction="none", ignore_index=ignore_index)
    return softmax, loss.reshape([1 if i == axis else n for i, n in enumerate(logits.shape)])


@op("sigmoid_cross_entropy_with_logits", inputs="X Label! pos_weight?!")
def _sigmoid_cross_entropy_with_logits(
    x: torch.Tensor,
    label: torch.Tensor,
    pos_weight: torch.Tensor | None,
    *,
    normalize: bool = False,
    ignore_index: int = -100,
) -> torch.Tensor:
    if pos_weight is None:
        loss = F.binary_cross_entropy_with_logits(x, label, reduction="none")
    else:  # the caller has already made it 1 where labels are 0
        loss = (1 - label) * x + pos_weight * F.softplus(-x)
    kept = label != ignore_index
    loss = loss * kept
    return loss / kept.sum().clamp_min(1) if normalize else loss


op("bce_loss", inputs="X Label!")(
    lambda x, label: F.binary_cross_entropy(x, label, reduction="none")
)


@op("nll_loss", inputs="X Label! Weight?!", outputs="Out Total_weight?")
def _nll_loss(
    x: torch.Tensor,
    label: torch.Tensor,
    weight: torch.Tensor | None,
    *,
    ignore_index: Long = -100,
    reduction: str = "mean",
) -> tuple[torch.Tensor, torch.Tensor]:
    loss = F.nll_loss(x, label, weight, ignore_index=ignore_index, reduction="none")
    kept = label != ignore_index
    weights = kept.to(x.dtype)
    if weight is not None:
        weights = weights * weight[label.masked_fill(~kept, 0)]
    total = weights.sum().reshape(1)
    if reduction == "none":
        return loss, torch.zeros_like(total)  # nothing is divided by it
    out = loss.sum().reshape(1)
    return (out if reduction == "sum" else out / total), total


@op("kldiv_loss", inputs="X Target!", outputs="Loss")
def _kldiv_loss(x: torch.Tensor, target: torch.Tensor, *, reduction: str = "mean") -> torch.Tensor:
    loss = torch.where(target > 0, torch.xlogy(target, target) - target * x, 0.0 * x)
    if reduction == "none":
        return loss
    if reduction == "batchmean":
        return (loss.sum() / x.shape[0]).reshape(1)
    return (loss.mean() if reduction == "mean" else loss.sum()).reshape(1)


@op("log_loss", inputs="Predicted Labels!", outputs="Loss")
def _log_loss(x: torch.Tensor, label: torch.Tensor, *, epsilon: float = 1e-4) -> torch.Tensor:
    return -label * torch.log(x + epsilon) - (1 - label) * torch.log(1 - x + epsilon)


@op("label_smooth", inputs="X PriorDist?!")
def _label_smooth(
    x: torch.Tensor, prior: torch.Tensor | None, *, epsilon: float = 0.0
) -> torch.Tensor:
    if prior is None:
        return x * (1 - epsilon) + epsilon / x.shape[-1]
    return x * (1 - epsilon) + epsilon * prior.reshape(-1)


@op(
    "teacher_student_sigmoid_loss",
    inputs="X Label!",
    outputs="Y",
    attrs={"soft_max_up_bound": 15.0, "soft_max_lower_bound": -15.0},
)
def _teacher_student_sigmoid_loss(x: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
    """Cross entropy with a click and with a teacher's score, both packed into one label.

    label < -1: no click, no score; < 0: click, no score; < 1: no click, the label is the score;
    else a click, and the score is label - 1.
    """
    click = ((label >= -1) & (label < 0)) | (label >= 1)
    base = x.clamp_min(0) + torch.log1p(torch.exp(-x.abs()))
    loss = base - torch.where(click, x, 0.0)
    score = torch.where(label >= 1, label - 1, label)
    return loss + torch.where(label >= 0, base - x * score, 0.0)
