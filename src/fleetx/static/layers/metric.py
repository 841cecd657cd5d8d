"""Metrics computed inside a program."""

from __future__ import annotations

from fleetx.static.building.layer_helper import LayerHelper
from fleetx.static.building.one_op import HALF_TOO, INTS, WIDE
from fleetx.static.building.op_layer import checked, op_layer
from fleetx.static.graph.variable import Variable
from fleetx.static.initializer import Constant
from fleetx.static.layers.search import topk

__all__ = ["accuracy", "auc", "chunk_eval", "mean_iou"]


@checked(input=HALF_TOO)
def accuracy(
    input: Variable,
    label: Variable,
    k: int = 1,
    correct: Variable | None = None,
    total: Variable | None = None,
) -> Variable:
    """Return the fraction of rows whose label is among their k highest scores.

    Args:
        input: scores of shape [batch, classes].
        label: class numbers of shape [batch, 1].
        k: the number of highest scores that count.
        correct: an int32 Variable for the number of correct rows.
        total: an int32 Variable for the number of rows.
    """
    helper = LayerHelper("accuracy")
    values, indices = topk(input, k=k)
    out = helper.create_variable_for_type_inference("float32")
    if correct is None:
        correct = helper.create_variable_for_type_inference("int32")
    if total is None:
        total = helper.create_variable_for_type_inference("int32")
    helper.append_op(
        type="accuracy",
        inputs={"Out": [values], "Indices": [indices], "Label": [label]},
        outputs={"Accuracy": [out], "Correct": [correct], "Total": [total]},
    )
    return out


@checked(input=WIDE, label=INTS)
def auc(
    input: Variable,
    label: Variable,
    curve: str = "ROC",
    num_thresholds: int = 2**12 - 1,
    topk: int = 1,
    slide_steps: int = 1,
) -> tuple[Variable, Variable, list[Variable]]:
    """Return the AUC over all batches, the AUC over the last ones, and the statistics.

    Args:
        input: probabilities; the last column is that of the positive class.
        label: 0 or 1, of shape [batch, 1].
        curve: 'ROC'.
        num_thresholds: the number of buckets of probabilities, minus one.
        topk: accepted, without effect.
        slide_steps: the number of last batches for the second result.
    """
    helper = LayerHelper("auc")
    auc_out = helper.create_variable_for_type_inference("float64")
    batch_auc_out = helper.create_variable_for_type_inference("float64")
    buckets = num_thresholds + 1
    window = [(1 + slide_steps) * buckets + 1]
    statistics = [
        helper.create_global_variable(persistable=True, dtype="int64", shape=shape)
        for shape in (window, window, [1, buckets], [1, buckets])
    ]
    for var in statistics:
        helper.set_variable_initializer(var, Constant(value=0.0, force_cpu=False))
    for out, (pos, neg), steps in (
        (batch_auc_out, statistics[:2], slide_steps),
        (auc_out, statistics[2:], 0),
    ):
        helper.append_op(
            type="auc",
            inputs={"Predict": input, "Label": label, "StatPos": pos, "StatNeg": neg},
            attrs={"curve": curve, "num_thresholds": num_thresholds, "slide_steps": steps},
            outputs={"AUC": out, "StatPosOut": pos, "StatNegOut": neg},
        )
    return auc_out, batch_auc_out, statistics


@op_layer(
    "Predictions=input Labels=label",
    output="OutMeanIou:float32 OutWrong:int32 OutCorrect:int32",
    returns="OutMeanIou OutWrong OutCorrect",
    input=INTS,
    label=INTS,
)
def mean_iou(
    input: Variable, label: Variable, num_classes: int
) -> tuple[Variable, Variable, Variable]:
    """Return the mean IoU of the classes, and the wrong and correct pixels per class."""


@op_layer(
    "Inference=input label seq_length",
    output="Precision:float32 Recall:float32 F1-Score:float32 NumInferChunks NumLabelChunks "
    "NumCorrectChunks",
    element_type="int64",
    returns="Precision Recall F1-Score NumInferChunks NumLabelChunks NumCorrectChunks",
    input=("int64",),
    label=("int64",),
)
def chunk_eval(
    input: Variable,
    label: Variable,
    chunk_scheme: str,
    num_chunk_types: int,
    excluded_chunk_types: list[int] | None = None,
    seq_length: Variable | None = None,
) -> tuple[Variable, ...]:
    """Return precision, recall and F1 of chunks, and the predicted, true and correct counts.

    Args:
        input: predicted tags, a sequence per instance (or padded, with `seq_length`).
        label: true tags.
        chunk_scheme: how tags mark chunks: 'plain', 'IOB', 'IOE' or 'IOBES'.
        num_chunk_types: the number of chunk types.
        excluded_chunk_types: types to ignore.
        seq_length: the lengths of padded sequences.
    """
