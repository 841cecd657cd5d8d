"""Layers for sequence labelling: CRF, edit distance, backtracking of beams."""

from __future__ import annotations

from typing import Any

from fleetx.exports import export_defined
from fleetx.static.building.layer_helper import LayerHelper
from fleetx.static.building.one_op import INTS, WIDE
from fleetx.static.building.op_layer import checked, op_layer
from fleetx.static.graph.variable import Variable


@checked(input=WIDE, label=("int64",))
def linear_chain_crf(
    input: Variable, label: Variable, param_attr: Any = None, length: Variable | None = None
) -> Variable:
    """Return the negative log-likelihood of each sequence of tags, shape [sequences, 1].

    Args:
        input: the score of every tag at every step: sequences [N, tags], or a padded
            [sequences, steps, tags] together with `length`.
        label: the true tags, in the layout of `input`.
        param_attr: the attributes of the transition weights [tags + 2, tags].
        length: the lengths of padded sequences.
    """
    helper = LayerHelper("linear_chain_crf", param_attr=param_attr)
    tags = input.shape[1 if length is None else 2]
    transition = helper.create_parameter(helper.param_attr, [tags + 2, tags], input.dtype)
    outputs = ("Alpha", "EmissionExps", "TransitionExps", "LogLikelihood")
    *_, log_likelihood = helper.outputs_of(
        "linear_chain_crf",
        {"Emission": input, "Transition": transition, "Label": label, "Length": length},
        **dict.fromkeys(outputs, input.dtype),
    )
    return log_likelihood


@checked(input=WIDE)
def crf_decoding(
    input: Variable,
    param_attr: Any,
    label: Variable | None = None,
    length: Variable | None = None,
) -> Variable:
    """Return the most likely tags; with `label`, 1 where the tag is the label and 0 elsewhere.

    `param_attr` names the transition weights that a `linear_chain_crf` trains.
    """
    helper = LayerHelper("crf_decoding")
    transition = helper.get_parameter(param_attr.name)
    inputs = {"Emission": input, "Transition": transition, "Label": label, "Length": length}
    return helper.output_of("crf_decoding", inputs, dtype="int64", slot="ViterbiPath")


@checked(input=("int64",), label=("int64",))
def edit_distance(
    input: Variable,
    label: Variable,
    normalized: bool = True,
    ignored_tokens: list[int] | None = None,
    input_length: Variable | None = None,
    label_length: Variable | None = None,
) -> tuple[Variable, Variable]:
    """Return the edit distance of each pair of sequences, [sequences, 1], and their number.

    Args:
        input: the predicted sequences.
        label: the true sequences.
        normalized: whether to divide by the length of the true sequence.
        ignored_tokens: tokens to remove first.
        input_length: the lengths if `input` is a padded tensor.
        label_length: the lengths if `label` is a padded tensor.
    """
    helper = LayerHelper("edit_distance")
    if ignored_tokens:
        input = _erase(helper, input, ignored_tokens)
        label = _erase(helper, label, ignored_tokens)
    lengths = {"HypsLength": input_length, "RefsLength": label_length}
    distance, count = helper.outputs_of(
        "edit_distance",
        {"Hyps": input, "Refs": label, **lengths},
        {"normalized": normalized},
        Out="float32",
        SequenceNum="int64",
    )
    return distance, count


def _erase(helper: LayerHelper, x: Variable, tokens: list[int]) -> Variable:
    return helper.output_of("sequence_erase", {"X": [x]}, {"tokens": list(tokens)}, dtype="int64")


@op_layer("ids parents", ids=INTS, parents=INTS)
def gather_tree(ids: Variable, parents: Variable) -> Variable:
    """Backtrack a beam search: return full sequences from the ids and parent beams of the steps."""


export_defined(globals())
