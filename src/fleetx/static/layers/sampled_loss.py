"""Losses for a large number of classes."""

from __future__ import annotations

from typing import Any

import numpy as np

from fleetx.static.building.argument_checks import check_variable_and_dtype
from fleetx.static.building.layer_helper import LayerHelper
from fleetx.static.building.one_op import WIDE
from fleetx.static.building.op_layer import checked
from fleetx.static.building.param_attr import ParamAttr
from fleetx.static.graph.variable import Variable
from fleetx.static.initializer import NumpyArrayInitializer
from fleetx.static.layers.window_args import check_choice

__all__ = ["hsigmoid", "nce", "sampled_softmax_with_cross_entropy"]

_SAMPLERS = {"uniform": 0, "log_uniform": 1, "custom_dist": 2}


def _alias_table(dist: Any) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Return the alias (or -1) and the acceptance probability of each class (Vose's method)."""
    scaled = np.asarray(dist, dtype="float64") * len(dist)
    alias, keep = np.full(len(dist), -1, "int32"), np.ones(len(dist), "float32")
    small = [i for i, p in enumerate(scaled) if p < 1.0]
    large = [i for i, p in enumerate(scaled) if p > 1.0]
    while small and large:
        low, high = small.pop(0), large.pop(0)
        keep[low], alias[low] = scaled[low], high
        scaled[high] += scaled[low] - 1.0
        if scaled[high] > 1.0:
            large.append(high)
        elif scaled[high] < 1.0:
            small.append(high)
    return alias, keep


def nce(
    input: Variable,
    label: Variable,
    num_total_classes: int,
    sample_weight: Variable | None = None,
    param_attr: Any = None,
    bias_attr: Any = None,
    num_neg_samples: int | None = None,
    name: str | None = None,
    sampler: str = "uniform",
    custom_dist: Any = None,
    seed: int = 0,
    is_sparse: bool = False,
) -> Variable:
    """Return the loss of noise contrastive estimation.

    Args:
        input: features [batch, width].
        label: class numbers [batch, true classes].
        num_total_classes: the number of classes.
        sample_weight: a weight for each row.
        param_attr: attributes of the class vectors [classes, width].
        bias_attr: attributes of the class biases [classes, 1]; False for none.
        num_neg_samples: the number of negative classes per row, 10 by default.
        sampler: 'uniform', 'log_uniform' or 'custom_dist'.
        custom_dist: the probability of each class for 'custom_dist'.
        seed: if not 0, every step draws the same classes.
        is_sparse: whether the gradient holds only the classes in use.
    """
    helper = LayerHelper("nce", param_attr=param_attr, bias_attr=bias_attr, name=name)
    check_variable_and_dtype(input, "input", WIDE, "nce")
    check_variable_and_dtype(label, "label", ["int64"], "nce")
    check_choice(sampler, "sampler", tuple(_SAMPLERS), "nce")
    weight = helper.weight([num_total_classes, input.shape[1]], input.dtype)
    inputs: dict[str, Any] = {"Input": input, "Label": label, "Weight": weight}
    inputs["Bias"] = helper.bias([num_total_classes, 1], input.dtype)
    outputs = {"Cost": input.dtype, "SampleLogits": input.dtype, "SampleLabels": label.dtype}
    made = {s: helper.create_variable_for_type_inference(d) for s, d in outputs.items()}
    if sample_weight is not None:
        inputs["SampleWeight"] = sample_weight
    if sampler == "custom_dist":
        if custom_dist is None:
            raise ValueError("nce with sampler 'custom_dist' needs custom_dist.")
        alias, keep = _alias_table(custom_dist)
        tables = {
            "CustomDistProbs": np.asarray(custom_dist, "float32"),
            "CustomDistAlias": alias,
            "CustomDistAliasProbs": keep,
        }
        for slot, array in tables.items():
            first, kind = NumpyArrayInitializer(array), str(array.dtype)
            table = helper.create_parameter(
                ParamAttr(), array.shape, kind, default_initializer=first
            )
            table.stop_gradient = True
            inputs[slot] = table
    count = 10 if num_neg_samples is None else int(num_neg_samples)
    helper.append_op(
        type="nce",
        inputs=inputs,
        outputs=made,
        attrs={
            "num_total_classes": int(num_total_classes),
            "num_neg_samples": count,
            "seed": seed,
            "sampler": _SAMPLERS[sampler],
            "is_sparse": is_sparse,
            "remote_prefetch": is_sparse,
        },
    )
    return made["Cost"] / (count + 1)


@checked(input=WIDE, label=("int64",))
def hsigmoid(
    input: Variable,
    label: Variable,
    num_classes: int,
    param_attr: Any = None,
    bias_attr: Any = None,
    name: str | None = None,
    path_table: Variable | None = None,
    path_code: Variable | None = None,
    is_custom: bool = False,
    is_sparse: bool = False,
) -> Variable:
    """Return the loss of a hierarchical sigmoid: one decision per level of a tree of classes.

    Args:
        input: features [batch, width].
        label: class numbers [batch, 1].
        num_classes: the number of classes, or of inner nodes of a custom tree.
        path_table: the nodes on the path to each row's class, for a custom tree.
        path_code: the decisions on that path.
        is_custom: whether the tree is a custom one.
        is_sparse: whether the gradient holds only the nodes in use.
    """
    if is_custom and (path_table is None or path_code is None or num_classes is None):
        raise ValueError("hsigmoid with is_custom needs path_table, path_code and num_classes.")
    if not is_custom and (path_table is not None or path_code is not None):
        raise ValueError("hsigmoid takes path_table and path_code only with is_custom=True.")
    if not is_custom and (num_classes is None or num_classes < 2):
        raise ValueError(f"num_classes of hsigmoid must be at least 2, but is {num_classes}.")
    helper = LayerHelper(
        "hierarchical_sigmoid", param_attr=param_attr, bias_attr=bias_attr, name=name
    )
    nodes = num_classes if is_custom else num_classes - 1
    inputs = {"X": input, "W": helper.weight([nodes, input.shape[1]], input.dtype), "Label": label}
    inputs |= {"PathTable": path_table, "PathCode": path_code}
    inputs["Bias"] = helper.bias([nodes, 1], input.dtype)
    sparse = is_sparse and is_custom
    attrs = {"num_classes": num_classes, "is_sparse": sparse, "remote_prefetch": sparse}
    types = dict.fromkeys(("Out", "PreOut"), input.dtype)
    return helper.outputs_of("hierarchical_sigmoid", inputs, attrs, **types)[0]


def sampled_softmax_with_cross_entropy(
    logits: Variable,
    label: Variable,
    num_samples: int,
    num_true: int = 1,
    remove_accidental_hits: bool = True,
    use_customized_samples: bool = False,
    customized_samples: Variable | None = None,
    customized_probabilities: Variable | None = None,
    seed: int = 0,
) -> Variable:
    """Return the cross entropy of a softmax over the true and some sampled classes."""
    helper = LayerHelper("sample_logits")
    samples, probabilities = customized_samples, customized_probabilities
    if not use_customized_samples:
        samples = helper.create_variable_for_type_inference("int64")
        probabilities = helper.create_variable_for_type_inference(logits.dtype)
    sampled_logits = helper.create_variable_for_type_inference(logits.dtype)
    sampled_label = helper.create_variable_for_type_inference("int64")
    given = {"Samples": customized_samples, "Probabilities": customized_probabilities}
    outputs = {"Samples": samples, "Probabilities": probabilities}
    helper.append_op(
        type="sample_logits",
        inputs={"Logits": logits, "Labels": label, **{f"Customized{k}": given[k] for k in given}},
        outputs={**outputs, "SampledLabels": sampled_label, "SampledLogits": sampled_logits},
        attrs={
            "use_customized_samples": use_customized_samples,
            "uniq": True,
            "remove_accidental_hits": remove_accidental_hits,
            "num_samples": num_samples,
            "seed": seed,
        },
    )
    attrs = {"depth": num_samples + 1}
    soft_label = helper.output_of("one_hot", {"X": sampled_label}, attrs, dtype=logits.dtype)
    loss, _ = helper.outputs_of(
        "softmax_with_cross_entropy",
        {"Logits": sampled_logits, "Label": soft_label},
        {"soft_label": True, "numeric_stable_mode": False},
        Loss=logits.dtype,
        Softmax=logits.dtype,
    )
    return loss / num_true
