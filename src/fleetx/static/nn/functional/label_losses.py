"""Losses of label sequences (CTC), and of many classes in a tree (hierarchical sigmoid)."""

from __future__ import annotations

from fleetx.exports import export_defined
from fleetx.static.building.argument_checks import check_variable_and_dtype
from fleetx.static.building.one_op import WIDE
from fleetx.static.building.op_layer import changed, op_layer
from fleetx.static.graph.variable import Variable
from fleetx.static.layers.ctc import warpctc
from fleetx.static.layers.tensor import cast, squeeze
from fleetx.static.nn.functional.emit import binary, check_reduction, reduce, reduce_loss


def ctc_loss(
    log_probs: Variable,
    labels: Variable,
    input_lengths: Variable,
    label_lengths: Variable,
    blank: int = 0,
    reduction: str = "mean",
    norm_by_times: bool = False,
) -> Variable:
    """Return the CTC loss of each label sequence; applies the softmax itself.

    Args:
        log_probs: logits, padded to [steps, batch, classes].
        labels: int32 tokens, padded to [batch, tokens].
        input_lengths: the number of steps per instance, int64.
        label_lengths: the number of tokens per instance, int64.
        blank: the blank token.
        reduction: 'mean' averages losses divided by their number of tokens; 'sum' or 'none'.
        norm_by_times: whether to divide gradients by the number of steps.
    """
    check_reduction(reduction, "ctc_loss")
    loss = warpctc(log_probs, labels, blank, norm_by_times, input_lengths, label_lengths)
    loss = squeeze(loss, [-1])
    if reduction == "mean":
        return reduce("mean", binary("elementwise_div", loss, cast(label_lengths, loss.dtype)))
    return reduce_loss(loss, reduction, "ctc_loss")


@op_layer(
    "X=input W=weight label bias path_table path_code",
    op="hierarchical_sigmoid",
    output="Out PreOut",
)
def hsigmoid_loss(
    input: Variable,
    label: Variable,
    num_classes: int,
    weight: Variable,
    bias: Variable | None = None,
    path_table: Variable | None = None,
    path_code: Variable | None = None,
    is_sparse: bool = False,
    name: str | None = None,
) -> Variable:
    """Return the loss of a hierarchical sigmoid [batch, 1]: one decision per level of a tree.

    Args:
        input: features [batch, width].
        label: class numbers [batch, 1] or [batch].
        num_classes: the number of classes; at least 2 without a custom tree.
        weight: the vectors of the nodes [num_classes - 1, width].
        bias: the biases of the nodes [num_classes - 1, 1].
        path_table: the nodes on the path to each row's class, for a custom tree.
        path_code: the decisions on that path.
        is_sparse: whether the gradient holds only the nodes in use.
    """
    if num_classes < 2 and path_table is None:
        raise ValueError(f"num_classes of hsigmoid_loss must be at least 2, but is {num_classes}.")
    if (path_table is None) != (path_code is None):
        raise ValueError("hsigmoid_loss takes path_table and path_code together, or neither.")
    check_variable_and_dtype(input, "input", WIDE, "hsigmoid_loss")
    check_variable_and_dtype(label, "label", ["int64"], "hsigmoid_loss")
    return changed(remote_prefetch=is_sparse)


export_defined(globals())
