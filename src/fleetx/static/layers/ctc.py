"""Layers for connectionist temporal classification."""

from __future__ import annotations

from typing import Any

from fleetx.static.building.argument_checks import check_variable_and_dtype
from fleetx.static.building.layer_helper import LayerHelper
from fleetx.static.building.op_layer import changed, op_layer
from fleetx.static.graph.variable import Variable
from fleetx.static.layers.search import topk
from fleetx.static.layers.tensor import squeeze

__all__ = ["ctc_greedy_decoder", "warpctc"]


@op_layer(
    "Logits=input label LogitsLength=input_length LabelLength=label_length",
    output="Loss WarpCTCGrad",
    input=("float32",),
    label=("int32",),
)
def warpctc(
    input: Variable,
    label: Variable,
    blank: int = 0,
    norm_by_times: bool = False,
    input_length: Variable | None = None,
    label_length: Variable | None = None,
) -> Variable:
    """Return the CTC loss: the negative log-likelihood of each label sequence.

    Args:
        input: logits, a sequence per instance, or padded [steps, batch, classes] with lengths.
        label: int32 tokens, a sequence per instance, or padded [batch, tokens] with lengths.
        blank: the blank token.
        norm_by_times: whether to divide gradients by the number of steps.
        input_length: the number of steps per instance.
        label_length: the number of tokens per instance.
    """
    if input_length is None or label_length is None:
        return changed(input_length=None, label_length=None)
    check_variable_and_dtype(input_length, "LogitsLength", ["int64"], "warpctc")
    check_variable_and_dtype(label_length, "LabelLength", ["int64"], "warpctc")
    return changed()


def ctc_greedy_decoder(
    input: Variable,
    blank: int,
    input_length: Variable | None = None,
    padding_value: int = 0,
    name: str | None = None,
) -> Any:
    """Decode greedily: the most likely token of each step, without repetitions and blanks.

    Padded input [batch, steps, classes] with `input_length` gives (tokens, lengths).
    """
    helper = LayerHelper("ctc_greedy_decoder", name=name)
    _, tokens = topk(input, k=1)
    attrs: dict[str, Any] = {"merge_repeated": True, "blank": blank}
    if input_length is None:
        inputs = {"Input": tokens}
        return helper.output_of("ctc_align", inputs, attrs, dtype="int64", slot="Output")
    out, lengths = helper.outputs_of(
        "ctc_align",
        {"Input": squeeze(tokens, [2]), "InputLength": input_length},
        {**attrs, "padding_value": padding_value},
        Output="int64",
        OutputLength="int64",
    )
    return out, lengths
