"""Losses."""

from __future__ import annotations

from typing import Any

from fleetx.exports import export_defined
from fleetx.static import layers
from fleetx.static.building.argument_checks import check_type, check_variable_and_dtype
from fleetx.static.building.layer_helper import LayerHelper
from fleetx.static.building.one_op import HALF_TOO, WIDE, one_op
from fleetx.static.building.op_layer import checked, op_layer
from fleetx.static.errors import ShapeError
from fleetx.static.graph.variable import Variable
from fleetx.static.initializer import Constant
from fleetx.static.layers.math import reduce_mean

IGNORE_INDEX = -100
_REDUCTIONS = ("none", "mean", "sum", "batchmean")


def cross_entropy(
    input: Variable, label: Variable, soft_label: bool = False, ignore_index: int = IGNORE_INDEX
) -> Variable:
    """Return the cross entropy of each row: the negative log-probability of its label.

    Args:
        input: probabilities, classes in the last dimension.
        label: class numbers of shape [..., 1], or with `soft_label` distributions.
        soft_label: whether labels are distributions.
        ignore_index: a class number whose rows are ignored.
    """
    if not soft_label:
        return cross_entropy2(input, label, ignore_index)
    check_variable_and_dtype(input, "input", HALF_TOO, "cross_entropy")
    attrs = {"soft_label": soft_label, "ignore_index": ignore_index}
    return one_op("cross_entropy", {"X": input, "Label": label}, attrs, dtype=input.dtype, slot="Y")


@op_layer("X=input label", output="Y XShape MatchX", input=HALF_TOO)
def cross_entropy2(input: Variable, label: Variable, ignore_index: int = IGNORE_INDEX) -> Variable:
    """Return the cross entropy of probabilities with class numbers; see `cross_entropy`."""


@checked(input=WIDE, label=WIDE)
def square_error_cost(input: Variable, label: Variable) -> Variable:
    """Return the squared differences."""
    helper = LayerHelper("square_error_cost")
    difference = helper.output_of(
        "elementwise_sub", {"X": [input], "Y": [label]}, dtype=input.dtype
    )
    return helper.output_of("square", {"X": [difference]}, dtype=input.dtype)


@op_layer("logits label", output="Softmax Loss", returns="Loss Softmax?return_softmax")
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


@op_layer("x label", x=HALF_TOO)
def sigmoid_cross_entropy_with_logits(
    x: Variable,
    label: Variable,
    ignore_index: int = IGNORE_INDEX,
    name: str | None = None,
    normalize: bool = False,
) -> Variable:
    """Return the binary cross entropy with logits; `normalize` divides by the number of labels."""


@checked(input=WIDE, label=WIDE)
def mse_loss(input: Variable, label: Variable) -> Variable:
    """Return the mean squared error."""
    return reduce_mean(square_error_cost(input, label))


@op_layer(
    "x y inside_weight outside_weight",
    op="smooth_l1_loss",
    layer="smooth_l1_loss",
    output="Diff Out",
    returns="Out",
    x=WIDE,
    y=WIDE,
)
def smooth_l1(
    x: Variable,
    y: Variable,
    inside_weight: Variable | None = None,
    outside_weight: Variable | None = None,
    sigma: float | None = None,
) -> Variable:
    """Return the smooth L1 loss per row: quadratic below 1/sigma**2, linear above."""


@op_layer("X=input Y=label", output="Residual Out", returns="Out", input=WIDE, label=WIDE)
def huber_loss(input: Variable, label: Variable, delta: float) -> Variable:
    """Return the Huber loss: quadratic below `delta`, linear above."""


@op_layer("Predicted=input Labels=label", output="Loss", input=("float32",), label=("float32",))
def log_loss(
    input: Variable, label: Variable, epsilon: float = 1e-4, name: str | None = None
) -> Variable:
    """Return the binary cross entropy of probabilities."""


def _check_reduction(value: Any, name: str, layer: str) -> None:
    check_type(value, name, str, layer)
    if value not in _REDUCTIONS:
        choices = ", ".join(_REDUCTIONS)
        raise ShapeError(f"{name} of {layer} must be one of {choices}, not {value!r}.")


@op_layer("x target", output="Loss", x=WIDE, target=WIDE, reduction=_check_reduction)
def kldiv_loss(
    x: Variable, target: Variable, reduction: str = "mean", name: str | None = None
) -> Variable:
    """Return the KL divergence of `target` from exp(x), reduced by none, mean, sum or batchmean."""


def _check_share(value: float, name: str, layer: str) -> None:
    if not 0.0 <= value <= 1.0:
        raise ValueError(f"{name} of {layer} must be between 0 and 1, but is {value}.")


@op_layer("X=label prior_dist", element_type="dtype", no_grad="X", epsilon=_check_share, label=WIDE)
def label_smooth(
    label: Variable,
    prior_dist: Variable | None = None,
    epsilon: float = 0.1,
    dtype: Any = "float32",
    name: str | None = None,
) -> Variable:
    """Smooth labels with a prior, uniform by default: (1 - epsilon) label + epsilon prior."""


@op_layer("X=input label", output="Y", input=HALF_TOO)
def bpr_loss(input: Variable, label: Variable, name: str | None = None) -> Variable:
    """Return the Bayesian personalised ranking loss of scores and the chosen item."""


_PAIR: dict[str, Any] = dict.fromkeys(("label", "left", "right"), ("float32",))


@op_layer("label left right", element_type="float32", **_PAIR)
def rank_loss(
    label: Variable, left: Variable, right: Variable, name: str | None = None
) -> Variable:
    """Return the loss of RankNet: label 1 where `left` should score higher than `right`."""


@op_layer("label X1=left X2=right", output="Out Activated", **_PAIR)
def margin_rank_loss(
    label: Variable, left: Variable, right: Variable, margin: float = 0.1, name: str | None = None
) -> Variable:
    """Return max(0, margin - label (left - right)), label being 1 or -1."""


@checked(input=WIDE)
def center_loss(
    input: Variable,
    label: Variable,
    num_classes: int,
    alpha: Any,
    param_attr: Any,
    update_center: bool = True,
) -> Variable:
    """Return the centre loss (half the squared distance to the class centre); update centres."""
    helper = LayerHelper("center_loss")
    centers = helper.create_parameter(param_attr, [num_classes, input.shape[1]], input.dtype)
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
        inputs={"X": input, "Label": label, "Centers": centers, "CenterUpdateRate": alpha},
        outputs={"SampleCenterDiff": difference, "Loss": loss, "CentersOut": centers},
        attrs={"cluster_num": num_classes, "need_update": update_center},
    )
    return loss


@checked(input=WIDE, label=WIDE)
def teacher_student_sigmoid_loss(
    input: Variable,
    label: Variable,
    soft_max_up_bound: float = 15.0,
    soft_max_lower_bound: float = -15.0,
) -> Variable:
    """Return the distillation loss of a click and a teacher's score, packed into one label."""
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


@checked(anchor=WIDE, positive=WIDE, labels=(*WIDE, "int64"))
def npair_loss(
    anchor: Variable, positive: Variable, labels: Variable, l2_reg: float = 0.002
) -> Variable:
    """Return the N-pair loss of anchors and the positives of their labels."""
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
    """Return the Dice loss of predicted and true regions, averaged over the batch."""
    truth = layers.one_hot(label, depth=input.shape[-1])
    dims = list(range(1, len(input.shape)))
    overlap = layers.reduce_sum(input * truth, dim=dims)
    whole = layers.reduce_sum(input, dim=dims) + layers.reduce_sum(truth, dim=dims)
    return layers.reduce_mean(1 - overlap * 2 / (whole + epsilon))


export_defined(globals())
