"""Metrics computed inside a program."""

from __future__ import annotations

from typing import Any

from fleetx.static.building.argument_checks import check_variable_and_dtype
from fleetx.static.building.layer_helper import LayerHelper
from fleetx.static.graph.variable import Variable
from fleetx.static.initializer import Constant

__all__ = ["accuracy", "auc", "chunk_eval", "mean_iou"]


def accuracy(
    input: Variable,
    label: Variable,
    k: int = 1,
    correct: Variable | None = None,
    total: Variable | None = None,
) -> Variable:
    """Return the share of rows whose label is among their k highest scores.

    Args:
        input: scores of shape [batch, classes].
        label: class numbers of shape [batch, 1].
        k: how many of the highest scores count.
        correct: an int32 Variable that gets the number of such rows.
        total: an int32 Variable that gets the number of rows.
    """
    from fleetx.static.layers import topk

    helper = LayerHelper("accuracy")
    check_variable_and_dtype(input, "input", ["float16", "float32", "float64"], "accuracy")
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


def auc(
    input: Variable,
    label: Variable,
    curve: str = "ROC",
    num_thresholds: int = 2**12 - 1,
    topk: int = 1,
    slide_steps: int = 1,
) -> tuple[Variable, Variable, list[Variable]]:
    """Return the area under the curve over all batches, over the last ones, and the statistics.

    Args:
        input: probabilities; the last column is that of the positive class.
        label: 0 or 1, of shape [batch, 1].
        curve: 'ROC'.
        num_thresholds: into how many buckets probabilities are sorted, less one.
        topk: accepted, without effect.
        slide_steps: over how many last batches the second result goes.
    """
    helper = LayerHelper("auc")
    check_variable_and_dtype(input, "input", ["float32", "float64"], "auc")
    check_variable_and_dtype(label, "label", ["int32", "int64"], "auc")
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
        attrs: dict[str, Any] = {
            "curve": curve,
            "num_thresholds": num_thresholds,
            "slide_steps": steps,
        }
        helper.append_op(
            type="auc",
            inputs={"Predict": [input], "Label": [label], "StatPos": [pos], "StatNeg": [neg]},
            attrs=attrs,
            outputs={"AUC": [out], "StatPosOut": [pos], "StatNegOut": [neg]},
        )
    return auc_out, batch_auc_out, statistics


def mean_iou(
    input: Variable, label: Variable, num_classes: int
) -> tuple[Variable, Variable, Variable]:
    """Return the mean overlap of classes, and per class how many places are wrong and correct."""
    helper = LayerHelper("mean_iou")
    check_variable_and_dtype(input, "Predictions", ["int32", "int64"], "mean_iou")
    check_variable_and_dtype(label, "Labels", ["int32", "int64"], "mean_iou")
    mean, wrong, correct = helper.outputs_of(
        "mean_iou",
        {"Predictions": input, "Labels": label},
        {"num_classes": num_classes},
        OutMeanIou="float32",
        OutWrong="int32",
        OutCorrect="int32",
    )
    return mean, wrong, correct


def chunk_eval(
    input: Variable,
    label: Variable,
    chunk_scheme: str,
    num_chunk_types: int,
    excluded_chunk_types: list[int] | None = None,
    seq_length: Variable | None = None,
) -> tuple[Variable, ...]:
    """Return precision, recall and F1 of chunks, and how many are predicted, true and correct.

    Args:
        input: predicted tags, a sequence per instance (or padded, with `seq_length`).
        label: true tags.
        chunk_scheme: how tags mark chunks: 'plain', 'IOB', 'IOE' or 'IOBES'.
        num_chunk_types: the number of chunk types.
        excluded_chunk_types: types that do not count.
        seq_length: the lengths of padded sequences.
    """
    helper = LayerHelper("chunk_eval")
    check_variable_and_dtype(input, "input", ["int64"], "chunk_eval")
    check_variable_and_dtype(label, "label", ["int64"], "chunk_eval")
    slots = ("Precision", "Recall", "F1-Score")
    counts = ("NumInferChunks", "NumLabelChunks", "NumCorrectChunks")
    found = {s: helper.create_variable_for_type_inference("float32") for s in slots}
    found |= {s: helper.create_variable_for_type_inference("int64") for s in counts}
    helper.append_op(
        type="chunk_eval",
        inputs={"Inference": [input], "Label": [label], "SeqLength": seq_length},
        outputs={slot: [var] for slot, var in found.items()},
        attrs={
            "num_chunk_types": num_chunk_types,
            "chunk_scheme": chunk_scheme,
            "excluded_chunk_types": excluded_chunk_types or [],
        },
    )
    return tuple(found.values())
