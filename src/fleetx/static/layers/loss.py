"""Losses."""

from __future__ import annotations

from typing import Any

from fleetx.exports import export_defined
from fleetx.static.building.argument_checks import check_type, check_variable_and_dtype
from fleetx.static.building.layer_helper import LayerHelper
from fleetx.static.building.one_op import one_op
from fleetx.static.errors import ShapeError
from fleetx.static.graph.variable import Variable
from fleetx.static.initializer import Constant

IGNORE_INDEX = -100
_FLOATS = ["float16", "float32", "float64"]
_WIDE = ["float32", "float64"]
_REDUCTIONS = ("none", "mean", "sum", "batchmean")


def cross_entropy(
    input: Variable, label: Variable, soft_label: bool = False, ignore_index: int = IGNORE_INDEX
) -> Variable:
    """Return minus the logarithm of the probability that each row gives to its label.

    Args:
        input: probabilities, classes in the last dimension.
        label: class numbers of shape [..., 1], or with `soft_label` distributions.
        soft_label: whether labels are distributions.
        ignore_index: a class number whose rows do not count.
    """
    if not soft_label:
        return cross_entropy2(input, label, ignore_index)
    check_variable_and_dtype(input, "input", _FLOATS, "cross_entropy")
    return one_op(
        "cross_entropy",
        {"X": [input], "Label": [label]},
        {"soft_label": soft_label, "ignore_index": ignore_index},
        dtype=input.dtype,
        slot="Y",
    )


def cross_entropy2(input: Variable, label: Variable, ignore_index: int = IGNORE_INDEX) -> Variable:
    """Return the cross entropy of probabilities with class numbers; see `cross_entropy`."""
    check_variable_and_dtype(input, "input", _FLOATS, "cross_entropy2")
    helper = LayerHelper("cross_entropy2")
    out, x_shape, match_x = (
        helper.create_variable_for_type_inference(input.dtype) for _ in range(3)
    )
    helper.append_op(
        type="cross_entropy2",
        inputs={"X": [input], "Label": [label]},
        outputs={"Y": [out], "MatchX": [match_x], "XShape": [x_shape]},
        attrs={"ignore_index": ignore_index},
    )
    return out


def square_error_cost(input: Variable, label: Variable) -> Variable:
    """Return the squared differences."""
    check_variable_and_dtype(input, "input", _WIDE, "square_error_cost")
    check_variable_and_dtype(label, "label", _WIDE, "square_error_cost")
    helper = LayerHelper("square_error_cost")
    difference = helper.output_of(
        "elementwise_sub", {"X": [input], "Y": [label]}, dtype=input.dtype
    )
    return helper.output_of("square", {"X": [difference]}, dtype=input.dtype)


def softmax_with_cross_entropy(
    logits: Variable,
    label: Variable,
    soft_label: bool = False,
    ignore_index: int = IGNORE_INDEX,
    numeric_stable_mode: bool = True,
    return_softmax: bool = False,
    axis: int = -1,
) -> Any:
    """Return the cross entropy of softmax(logits); with `return_softmax`, (loss, softmax)."""
    helper = LayerHelper("softmax_with_cross_entropy")
    softmax, loss = helper.outputs_of(
        "softmax_with_cross_entropy",
        {"Logits": logits, "Label": label},
        {
            "soft_label": soft_label,
            "ignore_index": ignore_index,
            "numeric_stable_mode": numeric_stable_mode,
            "axis": axis,
        },
        Softmax=logits.dtype,
        Loss=logits.dtype,
    )
    return (loss, softmax) if return_softmax else loss


def sigmoid_cross_entropy_with_logits(
    x: Variable,
    label: Variable,
    ignore_index: int = IGNORE_INDEX,
    name: str | None = None,
    normalize: bool = False,
) -> Variable:
    """Return the cross entropy of yes/no decisions; `normalize` divides by their number."""
    check_variable_and_dtype(x, "input", _FLOATS, "sigmoid_cross_entropy_with_logits")
    return one_op(
        "sigmoid_cross_entropy_with_logits",
        {"X": x, "Label": label},
        {"ignore_index": ignore_index, "normalize": normalize},
        dtype=x.dtype,
        name=name,
    )


def mse_loss(input: Variable, label: Variable) -> Variable:
    """Return the mean of the squared differences."""
    from fleetx.static.layers import reduce_mean

    check_variable_and_dtype(input, "input", _WIDE, "mse_loss")
    check_variable_and_dtype(label, "label", _WIDE, "mse_loss")
    return reduce_mean(square_error_cost(input, label))


def smooth_l1(
    x: Variable,
    y: Variable,
    inside_weight: Variable | None = None,
    outside_weight: Variable | None = None,
    sigma: float | None = None,
) -> Variable:
    """Return per row the sum of errors that are quadratic below 1/sigma**2 and linear above."""
    check_variable_and_dtype(x, "X", _WIDE, "smooth_l1_loss")
    check_variable_and_dtype(y, "Y", _WIDE, "smooth_l1_loss")
    helper = LayerHelper("smooth_l1_loss")
    _, loss = helper.outputs_of(
        "smooth_l1_loss",
        {"X": x, "Y": y, "InsideWeight": inside_weight, "OutsideWeight": outside_weight},
        {"sigma": 1.0 if sigma is None else sigma},
        Diff=x.dtype,
        Out=x.dtype,
    )
    return loss


def huber_loss(input: Variable, label: Variable, delta: float) -> Variable:
    """Return errors that are quadratic below `delta` and linear above."""
    helper = LayerHelper("huber_loss")
    check_variable_and_dtype(input, "input", _WIDE, "huber_loss")
    check_variable_and_dtype(label, "label", _WIDE, "huber_loss")
    residual = helper.create_variable_for_type_inference(input.dtype)
    out = helper.create_variable_for_type_inference(input.dtype)
    helper.append_op(
        type="huber_loss",
        inputs={"X": input, "Y": label},
        outputs={"Out": out, "Residual": residual},
        attrs={"delta": delta},
    )
    return out


def log_loss(
    input: Variable, label: Variable, epsilon: float = 1e-4, name: str | None = None
) -> Variable:
    """Return the cross entropy of probabilities with yes/no labels."""
    check_variable_and_dtype(input, "input", ["float32"], "log_loss")
    check_variable_and_dtype(label, "label", ["float32"], "log_loss")
    return one_op(
        "log_loss",
        {"Predicted": [input], "Labels": [label]},
        {"epsilon": epsilon},
        dtype=input.dtype,
        slot="Loss",
        name=name,
    )


def kldiv_loss(
    x: Variable, target: Variable, reduction: str = "mean", name: str | None = None
) -> Variable:
    """Return the divergence of `target` from exp(x); reduction: none, mean, sum or batchmean."""
    check_variable_and_dtype(x, "x", _WIDE, "kldiv_loss")
    check_variable_and_dtype(target, "target", _WIDE, "kldiv_loss")
    check_type(reduction, "reduction", str, "kldiv_loss")
    if reduction not in _REDUCTIONS:
        raise ShapeError(
            f"reduction of kldiv_loss must be one of {', '.join(_REDUCTIONS)}, not {reduction!r}."
        )
    return one_op(
        "kldiv_loss",
        {"X": x, "Target": target},
        {"reduction": reduction},
        dtype=x.dtype,
        slot="Loss",
        name=name,
    )


def label_smooth(
    label: Variable,
    prior_dist: Variable | None = None,
    epsilon: float = 0.1,
    dtype: Any = "float32",
    name: str | None = None,
) -> Variable:
    """Mix labels with a prior, uniform by default: (1 - epsilon) label + epsilon prior."""
    if not 0.0 <= epsilon <= 1.0:
        raise ValueError(f"epsilon of label_smooth must be between 0 and 1, but is {epsilon}.")
    check_variable_and_dtype(label, "label", _WIDE, "label_smooth")
    label.stop_gradient = True
    return one_op(
        "label_smooth",
        {"X": label, "PriorDist": prior_dist},
        {"epsilon": float(epsilon)},
        dtype=dtype,
        name=name,
    )


def bpr_loss(input: Variable, label: Variable, name: str | None = None) -> Variable:
    """Return the Bayesian personalised ranking loss of scores against the item that was chosen."""
    check_variable_and_dtype(input, "input", _FLOATS, "bpr_loss")
    return one_op(
        "bpr_loss", {"X": [input], "Label": [label]}, dtype=input.dtype, slot="Y", name=name
    )


def rank_loss(
    label: Variable, left: Variable, right: Variable, name: str | None = None
) -> Variable:
    """Return the loss of RankNet: label 1 where `left` should score higher than `right`."""
    for value, what in ((label, "label"), (left, "left"), (right, "right")):
        check_variable_and_dtype(value, what, ["float32"], "rank_loss")
    return one_op(
        "rank_loss", {"Label": label, "Left": left, "Right": right}, dtype="float32", name=name
    )


def margin_rank_loss(
    label: Variable, left: Variable, right: Variable, margin: float = 0.1, name: str | None = None
) -> Variable:
    """Return max(0, margin - label (left - right)), label being 1 or -1."""
    helper = LayerHelper("margin_rank_loss", name=name)
    for value, what in ((label, "label"), (left, "left"), (right, "right")):
        check_variable_and_dtype(value, what, ["float32"], "margin_rank_loss")
    out, _ = helper.outputs_of(
        "margin_rank_loss",
        {"Label": label, "X1": left, "X2": right},
        {"margin": margin},
        Out=left.dtype,
        Activated=left.dtype,
    )
    return out


def center_loss(
    input: Variable,
    label: Variable,
    num_classes: int,
    alpha: Any,
    param_attr: Any,
    update_center: bool = True,
) -> Variable:
    """Return half the squared distance of rows from their class's centre; move the centres."""
    check_variable_and_dtype(input, "input", _WIDE, "center_loss")
    helper = LayerHelper("center_loss", input=input)
    centers = helper.create_parameter(
        attr=param_attr, shape=[num_classes, input.shape[1]], dtype=input.dtype
    )
    centers.stop_gradient = True
    if not isinstance(alpha, Variable):
        check_type(alpha, "alpha", float, "center_loss")
        rate = helper.create_global_variable(
            name="centerloss_alpha", shape=[1], dtype="float32", persistable=True
        )
        helper.set_variable_initializer(rate, Constant(alpha))
        alpha = rate
    difference = helper.create_variable_for_type_inference(input.dtype)
    loss = helper.create_variable_for_type_inference(input.dtype)
    helper.append_op(
        type="center_loss",
        inputs={
            "X": [input],
            "Label": [label],
            "Centers": [centers],
            "CenterUpdateRate": [alpha],
        },
        outputs={"SampleCenterDiff": [difference], "Loss": [loss], "CentersOut": [centers]},
        attrs={"cluster_num": num_classes, "need_update": update_center},
    )
    return loss


def teacher_student_sigmoid_loss(
    input: Variable,
    label: Variable,
    soft_max_up_bound: float = 15.0,
    soft_max_lower_bound: float = -15.0,
) -> Variable:
    """Return the cross entropy with a click and with a teacher's score, packed into one label."""
    check_variable_and_dtype(input, "input", _WIDE, "teacher_student_sigmoid_loss")
    check_variable_and_dtype(label, "label", _WIDE, "teacher_student_sigmoid_loss")
    helper = LayerHelper("teacher_student_sigmoid_loss")
    out = helper.create_variable(dtype=input.dtype)
    helper.append_op(
        type="teacher_student_sigmoid_loss",
        inputs={"X": [input], "Label": [label]},
        outputs={"Y": [out]},
        attrs={
            "soft_max_lower_bound": float(soft_max_lower_bound),
            "soft_max_up_bound": float(soft_max_up_bound),
        },
    )
    return out


def npair_loss(
    anchor: Variable, positive: Variable, labels: Variable, l2_reg: float = 0.002
) -> Variable:
    """Return the N-pair loss: anchors should resemble the positives of their own label most."""
    from fleetx.static import layers

    check_variable_and_dtype(anchor, "anchor", _WIDE, "npair_loss")
    check_variable_and_dtype(positive, "positive", _WIDE, "npair_loss")
    check_variable_and_dtype(labels, "labels", [*_WIDE, "int64"], "npair_loss")
    rows = labels.shape[0]
    column = layers.expand(layers.reshape(labels, [rows, 1]), [1, rows])
    same = layers.cast(layers.equal(column, layers.transpose(column, [1, 0])), "float32")
    same = same / layers.reduce_sum(same, dim=1, keep_dim=True)
    lengths = [
        layers.reduce_mean(layers.reduce_sum(layers.square(v), 1)) for v in (anchor, positive)
    ]
    length_loss = (lengths[0] + lengths[1]) * 0.25 * l2_reg
    similarity = layers.matmul(anchor, positive, transpose_x=False, transpose_y=True)
    entropy = softmax_with_cross_entropy(logits=similarity, label=same, soft_label=True)
    return length_loss + layers.reduce_mean(layers.reduce_sum(same * entropy, 0))


def dice_loss(
    input: Variable, label: Variable, epsilon: float = 1e-5, name: str | None = None
) -> Variable:
    """Return one minus the overlap of predicted and true regions, averaged over the batch."""
    from fleetx.static import layers

    truth = layers.one_hot(label, depth=input.shape[-1])
    dims = list(range(1, len(input.shape)))
    overlap = layers.reduce_sum(input * truth, dim=dims)
    whole = layers.reduce_sum(input, dim=dims) + layers.reduce_sum(truth, dim=dims)
    return layers.reduce_mean(1 - overlap * 2 / (whole + epsilon))


export_defined(globals())
