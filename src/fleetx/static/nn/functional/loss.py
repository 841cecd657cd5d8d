"""Losses."""

from __future__ import annotations

from typing import Any

from fleetx.exports import export_defined
from fleetx.static.building.argument_checks import one_of
from fleetx.static.building.layer_helper import LayerHelper
from fleetx.static.building.one_op import one_op
from fleetx.static.building.op_layer import op_layer
from fleetx.static.graph.variable import Variable
from fleetx.static.layers.loss import (
    dice_loss,
    log_loss,
    npair_loss,
    softmax_with_cross_entropy,
    square_error_cost,
)
from fleetx.static.layers.math import scale
from fleetx.static.layers.tensor import cast, squeeze, transpose, unsqueeze
from fleetx.static.nn.functional.common import cosine_similarity, label_smooth, one_hot
from fleetx.static.nn.functional.emit import (
    binary,
    check_reduction,
    constant,
    pairwise_norm,
    reduce,
    reduce_loss,
)
from fleetx.static.tensor.common import unary
from fleetx.static.tensor.linalg import matmul


def _not_ignored(label: Variable, ignore_index: int, dtype: Any) -> Variable:
    """Return a mask: one where the label counts, zero where it equals `ignore_index`."""
    inputs = {"X": label, "Y": constant(ignore_index, label.dtype)}
    kept = one_op("not_equal", inputs, {"axis": -1}, dtype="bool")
    kept = cast(kept, dtype)
    kept.stop_gradient = True
    return kept


def _ratio(total: Variable, count: Variable) -> Variable:
    """Return total / count, or total if the count is zero."""
    empty = one_op(
        "equal", {"X": count, "Y": constant(0.0, count.dtype)}, {"axis": -1}, dtype="bool"
    )
    return binary(
        "elementwise_div", total, binary("elementwise_add", count, cast(empty, count.dtype))
    )


def _class_weights(
    weight: Variable, label: Variable, soft_label: bool, ignore_index: int, axis: int
) -> Variable:
    """Return the weight of each row of a cross entropy, with size one along the class axis."""
    rank = len(label.shape)
    if soft_label:
        perm = [i for i in range(rank) if i != axis] + [axis]
        rows = label if axis == rank - 1 else transpose(label, perm)
        return unsqueeze(matmul(cast(rows, weight.dtype), weight), [axis])
    kept = _not_ignored(label, ignore_index, label.dtype)
    index = unsqueeze(squeeze(binary("elementwise_mul", label, kept), [axis]), [-1])
    rows = one_op("gather_nd", {"X": weight, "Index": index}, {}, dtype=weight.dtype)
    return binary("elementwise_mul", unsqueeze(rows, [axis]), cast(kept, weight.dtype))


def cross_entropy(
    input: Variable,
    label: Variable,
    weight: Variable | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    soft_label: bool = False,
    axis: int = -1,
    use_softmax: bool = True,
    label_smoothing: float = 0.0,
    name: str | None = None,
) -> Variable:
    """Return the cross entropy of logits (or, without `use_softmax`, of probabilities) with labels.

    Args:
        input: logits, classes along `axis`.
        label: class indices, with or without a dimension of size one at `axis`; with
            `soft_label`, probabilities.
        weight: a weight for each class.
        ignore_index: the class index of rows that are ignored.
        reduction: 'none', 'sum', or 'mean', which divides by the number (or total weight) of
            rows that are not ignored.
        soft_label: whether labels are probabilities.
        axis: the dimension of the classes.
        use_softmax: whether `input` holds logits rather than probabilities.
        label_smoothing: the fraction of each label that is spread evenly over all classes.
        name: accepted, without effect.
    """
    check_reduction(reduction, "cross_entropy")
    if soft_label and ignore_index >= 0:
        raise ValueError("cross_entropy with soft_label cannot use ignore_index.")
    axis = axis % len(input.shape)
    if len(label.shape) == len(input.shape) - 1:
        label = unsqueeze(label, [axis])
    elif len(label.shape) != len(input.shape):
        raise ValueError(
            f"the label of cross_entropy must have the dimensions of the input (or one less), but "
            f"their shapes are {label.shape} and {input.shape}."
        )
    if label_smoothing > 0.0:
        if not soft_label:
            label = one_hot(squeeze(label, [axis]), input.shape[axis])
            if axis != len(input.shape) - 1:
                back = list(range(len(input.shape) - 1))
                label = transpose(label, [*back[:axis], len(back), *back[axis:]])
            soft_label = True
        label = label_smooth(cast(label, input.dtype), epsilon=label_smoothing)
    helper = LayerHelper("softmax_with_cross_entropy")
    _, loss = helper.outputs_of(
        "softmax_with_cross_entropy",
        {"Logits": input, "Label": label},
        {
            "soft_label": soft_label,
            "ignore_index": ignore_index,
            "numeric_stable_mode": True,
            "axis": axis,
            "use_softmax": use_softmax,
        },
        Softmax=input.dtype,
        Loss=input.dtype,
    )
    if weight is not None:
        if weight.shape[0] != input.shape[axis]:
            raise ValueError(
                f"cross_entropy has {input.shape[axis]} classes, but {weight.shape[0]} weights."
            )
        weights = _class_weights(weight, label, soft_label, ignore_index, axis)
        loss = binary("elementwise_mul", loss, weights)
    if reduction != "mean":
        return reduce_loss(loss, reduction, "cross_entropy")
    if weight is not None:
        return _ratio(reduce("sum", loss), reduce("sum", weights))
    if ignore_index >= 0:
        kept = _not_ignored(label, ignore_index, loss.dtype)
        return _ratio(reduce("sum", loss), reduce("sum", kept))
    return reduce("mean", loss)


def binary_cross_entropy(
    input: Variable,
    label: Variable,
    weight: Variable | None = None,
    reduction: str = "mean",
    name: str | None = None,
) -> Variable:
    """Return the binary cross entropy of probabilities."""
    check_reduction(reduction, "binary_cross_entropy")
    inputs = {"X": input, "Label": label}
    loss = one_op("bce_loss", inputs, {}, dtype=input.dtype, layer="binary_cross_entropy")
    if weight is not None:
        loss = binary("elementwise_mul", loss, weight)
    return reduce_loss(loss, reduction, "binary_cross_entropy")


def _with_logits(logit: Variable, label: Variable, pos_weight: Variable | None = None) -> Variable:
    inputs = {"X": logit, "Label": label, "pos_weight": pos_weight}
    attrs = {"ignore_index": -100, "normalize": False}
    return one_op("sigmoid_cross_entropy_with_logits", inputs, attrs, dtype=logit.dtype)


def binary_cross_entropy_with_logits(
    logit: Variable,
    label: Variable,
    weight: Variable | None = None,
    reduction: str = "mean",
    pos_weight: Variable | None = None,
    name: str | None = None,
) -> Variable:
    """Return the binary cross entropy of logits; `pos_weight` weights positive examples."""
    check_reduction(reduction, "binary_cross_entropy_with_logits")
    if pos_weight is not None:
        extra = binary("elementwise_mul", label, scale(pos_weight, 1.0, -1.0))
        pos_weight = scale(extra, 1.0, 1.0)
    loss = _with_logits(logit, label, pos_weight)
    if weight is not None:
        loss = binary("elementwise_mul", loss, weight)
    return reduce_loss(loss, reduction, "binary_cross_entropy_with_logits")


def mse_loss(
    input: Variable, label: Variable, reduction: str = "mean", name: str | None = None
) -> Variable:
    """Return the squared error."""
    check_reduction(reduction, "mse_loss")
    loss = unary("square", binary("elementwise_sub", input, label))
    return reduce_loss(loss, reduction, "mse_loss")


def l1_loss(
    input: Variable, label: Variable, reduction: str = "mean", name: str | None = None
) -> Variable:
    """Return the absolute error."""
    check_reduction(reduction, "l1_loss")
    loss = unary("abs", binary("elementwise_sub", input, label))
    return reduce_loss(loss, reduction, "l1_loss")


def smooth_l1_loss(
    input: Variable,
    label: Variable,
    reduction: str = "mean",
    delta: float = 1.0,
    name: str | None = None,
) -> Variable:
    """Return the Huber loss: quadratic below `delta`, linear above."""
    check_reduction(reduction, "smooth_l1_loss")
    dtypes = {"Residual": input.dtype, "Out": input.dtype}
    inputs, attrs = {"X": input, "Y": label}, {"delta": float(delta)}
    _, out = LayerHelper("huber_loss").outputs_of("huber_loss", inputs, attrs, **dtypes)
    return reduce_loss(out, reduction, "smooth_l1_loss")


@op_layer(
    "X=input label weight",
    output="Out Total_weight",
    no_grad="Total_weight",
    reduction=one_of("none", "mean", "sum"),
)
def nll_loss(
    input: Variable,
    label: Variable,
    weight: Variable | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    name: str | None = None,
) -> Variable:
    """Return the negative log likelihood of each label; classes are along dimension 1."""


def kl_div(
    input: Variable, label: Variable, reduction: str = "mean", name: str | None = None
) -> Variable:
    """Return the KL divergence of `label` from exp(input); reduction may be 'batchmean'."""
    inputs = {"X": input, "Target": label}
    attrs = {"reduction": reduction if reduction == "batchmean" else "none"}
    loss = one_op("kldiv_loss", inputs, attrs, dtype=input.dtype, layer="kl_div", slot="Loss")
    return loss if reduction == "batchmean" else reduce_loss(loss, reduction, "kl_div")


def margin_ranking_loss(
    input: Variable,
    other: Variable,
    label: Variable,
    margin: float = 0.0,
    reduction: str = "mean",
    name: str | None = None,
) -> Variable:
    """Return max(0, margin - label (input - other)), label being 1 or -1."""
    check_reduction(reduction, "margin_ranking_loss")
    gap = binary("elementwise_mul", scale(label, -1.0), binary("elementwise_sub", input, other))
    loss = unary("relu", gap if margin == 0.0 else scale(gap, 1.0, margin))
    return reduce_loss(loss, reduction, "margin_ranking_loss")


def hinge_embedding_loss(
    input: Variable,
    label: Variable,
    margin: float = 1.0,
    reduction: str = "mean",
    name: str | None = None,
) -> Variable:
    """Return the input where the label is 1 and max(0, margin - input) where it is -1."""
    check_reduction(reduction, "hinge_embedding_loss")
    positive = scale(label, 0.5, 0.5)
    negative = scale(label, -0.5, 0.5)
    near = binary("elementwise_mul", positive, input)
    far = binary("elementwise_mul", negative, unary("relu", scale(input, -1.0, margin)))
    return reduce_loss(binary("elementwise_add", near, far), reduction, "hinge_embedding_loss")


def cosine_embedding_loss(
    input1: Variable,
    input2: Variable,
    label: Variable,
    margin: float = 0,
    reduction: str = "mean",
    name: str | None = None,
) -> Variable:
    """Return 1 - cos where the label is 1 and max(0, cos - margin) where it is -1."""
    check_reduction(reduction, "cosine_embedding_loss")
    cos = cosine_similarity(input1, input2, axis=-1)
    label = cast(label, input1.dtype)
    near = binary("elementwise_mul", scale(label, 0.5, 0.5), scale(cos, -1.0, 1.0))
    far = binary(
        "elementwise_mul", scale(label, -0.5, 0.5), unary("relu", scale(cos, 1.0, -margin))
    )
    return reduce_loss(binary("elementwise_add", near, far), reduction, "cosine_embedding_loss")


def triplet_margin_loss(
    input: Variable,
    positive: Variable,
    negative: Variable,
    margin: float = 1.0,
    p: float = 2,
    epsilon: float = 1e-06,
    swap: bool = False,
    reduction: str = "mean",
    name: str | None = None,
) -> Variable:
    """Return max(0, margin + distance to the positive - distance to the negative)."""
    check_reduction(reduction, "triplet_margin_loss")
    near = pairwise_norm(input, positive, p, epsilon)
    far = pairwise_norm(input, negative, p, epsilon)
    if swap:
        far = binary("elementwise_min", far, pairwise_norm(positive, negative, p, epsilon))
    loss = unary("relu", scale(binary("elementwise_sub", near, far), 1.0, margin))
    return reduce_loss(loss, reduction, "triplet_margin_loss")


def sigmoid_focal_loss(
    logit: Variable,
    label: Variable,
    normalizer: Variable | None = None,
    alpha: float = 0.25,
    gamma: float = 2.0,
    reduction: str = "sum",
    name: str | None = None,
) -> Variable:
    """Return the focal loss: binary cross entropy that down-weights easy examples."""
    check_reduction(reduction, "sigmoid_focal_loss")
    loss = _with_logits(logit, label)
    prob = unary("sigmoid", logit)
    other_label = scale(label, -1.0, 1.0)
    right = binary(
        "elementwise_add",
        binary("elementwise_mul", prob, label),
        binary("elementwise_mul", scale(prob, -1.0, 1.0), other_label),
    )
    weights = binary("elementwise_add", scale(label, alpha), scale(other_label, 1.0 - alpha))
    focus = unary("pow", scale(right, -1.0, 1.0), {"factor": float(gamma)})
    loss = binary("elementwise_mul", focus, binary("elementwise_mul", weights, loss))
    if normalizer is not None:
        loss = binary("elementwise_div", loss, normalizer)
    return reduce_loss(loss, reduction, "sigmoid_focal_loss")


_OF_1X = (dice_loss, log_loss, npair_loss, softmax_with_cross_entropy, square_error_cost)
export_defined(globals(), *(function.__name__ for function in _OF_1X))
