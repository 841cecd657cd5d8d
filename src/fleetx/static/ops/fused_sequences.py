"""Ops on sequences that stand for several others, as optimised inference programs have them.

Each calls the functions of the ops that it replaces. Paddle's intermediate results are not
computed: nothing reads them, since these ops have no gradients.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from fleetx.static.graph.op_registry import Attr, detached_op, op
from fleetx.static.ops.cvm import with_log_counts
from fleetx.static.ops.rnn import activation_named, gru, lstm
from fleetx.static.ops.sequence import sequence_conv, sequence_pool
from fleetx.static.shapes.infer_rules import input_var, projected, set_output
from fleetx.static.shapes.lod import Lods, WithLod, lod_of, segment_ids

_LSTM_ATTRS = {**(lstm.__kwdefaults__ or {}), "use_seq": True}
_LSTM_NOTES = "XX? BatchedInput? BatchedHidden? BatchedCell? ReorderedH0? ReorderedC0?"


@op(
    "fusion_lstm",
    inputs="X WeightX WeightH Bias H0? C0?",
    outputs=f"Hidden Cell {_LSTM_NOTES} CheckedCell?",
    attrs=_LSTM_ATTRS,
    grad=None,
    infer=projected("X", "WeightH", 0, "Hidden", "Cell"),
)
def _fusion_lstm(
    x: Tensor,
    weight_x: Tensor,
    weight: Tensor,
    bias: Tensor,
    h0: Tensor | None,
    c0: Tensor | None,
    *,
    lod: Lods,
    use_seq: bool,
    **settings: Any,
) -> tuple[Any, ...]:
    """LSTM with the projection of its inputs; `use_seq` only chooses among Paddle's kernels."""
    hidden, cell, *_ = lstm(x @ weight_x, h0, c0, weight, bias, lod={"Input": lod["X"]}, **settings)
    return hidden, cell, *[None] * 7


@op(
    "fused_embedding_fc_lstm",
    inputs="Ids Embeddings WeightH Bias H0? C0?",
    outputs=f"Hidden Cell {_LSTM_NOTES}",
    attrs=_LSTM_ATTRS,
    grad=None,
    infer=projected("Ids", "WeightH", 0, "Hidden", "Cell"),
)
def _fused_embedding_fc_lstm(
    ids: Tensor,
    embeddings: Tensor,
    weight: Tensor,
    bias: Tensor,
    h0: Tensor | None,
    c0: Tensor | None,
    *,
    lod: Lods,
    use_seq: bool,
    **settings: Any,
) -> tuple[Any, ...]:
    """LSTM on ids whose rows of Embeddings are projected inputs with the biases of the gates."""
    width = weight.shape[0]
    peepholes = bias.reshape(-1)[4 * width :]
    hidden, cell, *_ = lstm(
        embeddings[ids.reshape(-1).long()],
        h0,
        c0,
        weight,
        torch.cat([bias.new_zeros(4 * width), peepholes]),
        lod={"Input": lod["Ids"]},
        **settings,
    )
    return hidden, cell, *[None] * 6


@op(
    "fusion_gru",
    inputs="X H0? WeightX WeightH Bias?",
    outputs="ReorderedH0? XX? BatchedInput? BatchedOut? Hidden",
    attrs={**(gru.__kwdefaults__ or {}), "use_seq": True},
    grad=None,
    infer=projected("X", "WeightH", 0, "Hidden"),
)
def _fusion_gru(
    x: Tensor,
    h0: Tensor | None,
    weight_x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    *,
    lod: Lods,
    use_seq: bool,
    **settings: Any,
) -> tuple[Any, ...]:
    """GRU with the projection of its inputs; `use_seq` only chooses among Paddle's kernels."""
    *_, hidden = gru(x @ weight_x, h0, weight, bias, lod={"Input": lod["X"]}, **settings)
    return *[None] * 4, hidden


@op(
    "fusion_seqconv_eltadd_relu",
    inputs="X Filter Bias",
    outputs="Out ColMat?",
    attrs={"contextLength": Attr("INT", 3), "contextStart": 0, "contextStride": 1},
    grad=None,
    infer=projected("X", "Filter", 1, "Out"),
)
def _fusion_seqconv_eltadd_relu(
    x: Tensor, weight: Tensor, bias: Tensor, *, lod: Lods, **settings: Any
) -> tuple[Tensor, None]:
    """Convolution over sequences with bias and ReLU."""
    out = sequence_conv(x, None, weight, paddingTrainable=False, lod={"X": lod["X"]}, **settings)
    return torch.relu(out + bias.reshape(-1)), None


@op(
    "fusion_seqexpand_concat_fc",
    inputs="X* FCWeight FCBias?",
    outputs="Out FCOut?",
    attrs={"fc_activation": "identity"},
    grad=None,
    infer=projected("X", "FCWeight", 1, "Out"),
)
def _fusion_seqexpand_concat_fc(
    xs: list[Tensor], weight: Tensor, bias: Tensor | None, *, fc_activation: str, lod: Lods
) -> tuple[Tensor, None]:
    """Multiply the rows of the first input, beside the others' row of their sequence."""
    offsets = lod_of(lod, "X", "fusion_seqexpand_concat_fc")[0]
    sequence = segment_ids(offsets, xs[0].device)
    out = torch.cat([xs[0], *(x[sequence] for x in xs[1:])], 1) @ weight
    out = out if bias is None else out + bias.reshape(-1)
    return activation_named(fc_activation)(out), None


def _infer_pooled(op: Any, block: Any) -> None:
    widths = [block.var_recursive(name).shape[1] for name in op.input("X")]
    left_out = 0 if op.attrs.get("use_cvm", True) else 2
    first = input_var(op, block, "X")
    width = sum(w - left_out for w in widths)
    set_output(op, block, "Out", (-1, width), first.dtype, lod_level=1)


def _pooled(xs: list[Tensor], pooltype: str, axis: int, lod: Lods, name: str) -> list[Tensor]:
    """Return one row per sequence of each input."""
    if axis != 1 or pooltype not in ("SUM", "AVERAGE", "SQRT"):
        raise ValueError(
            f"{name} has pooltype {pooltype!r} and axis {axis}, but only sums, averages and SQRT "
            "are joined, along axis 1: use sequence_pool and concat."
        )
    pooled = []
    for i, x in enumerate(xs):
        offsets = lod_of(lod, "X", name, i)
        out, _ = sequence_pool(x, pooltype=pooltype, pad_value=0.0, lod={"X": [offsets]})
        pooled.append(out.tensor)
    return pooled


def _one_row_each(parts: list[Tensor]) -> WithLod:
    """Return parts side by side; every row is a sequence of its own."""
    out = torch.cat(parts, 1)
    return WithLod(out, [list(range(len(out) + 1))])


@detached_op(
    "fusion_seqpool_concat", inputs="X*", attrs={"pooltype": "SUM", "axis": 1}, infer=_infer_pooled
)
def _fusion_seqpool_concat(xs: list[Tensor], *, pooltype: str, axis: int, lod: Lods) -> WithLod:
    """Reduce every sequence of every input to one row, and put those side by side."""
    return _one_row_each(_pooled(xs, pooltype, axis, lod, "fusion_seqpool_concat"))


@detached_op(
    "fusion_seqpool_cvm_concat",
    inputs="X* CVM",
    attrs={"pooltype": "SUM", "use_cvm": True, "axis": 1},
    infer=_infer_pooled,
)
def _fusion_seqpool_cvm_concat(
    xs: list[Tensor], counts: Tensor, *, pooltype: str, use_cvm: bool, axis: int, lod: Lods
) -> WithLod:
    """Like `fusion_seqpool_concat`, with the logarithms of shows and clicks; see `cvm`."""
    pooled = _pooled(xs, pooltype, axis, lod, "fusion_seqpool_cvm_concat")
    return _one_row_each([with_log_counts(x, use_cvm) for x in pooled])
