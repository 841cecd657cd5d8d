"""LSTM whose input at every step is an average of the whole sequence, weighted by attention.

The weights depend on the previous cell. The only loop is the one over time: sequences are padded to
the longest one, and those that have ended keep their state.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from fleetx.static.graph.op_registry import op
from fleetx.static.ops.rnn import activation_named
from fleetx.static.shapes.infer_rules import input_var, known, refuse, set_output
from fleetx.static.shapes.lod import Lods, WithLod, lengths_of, lod_of, positions, segment_ids


@known("X", "LSTMWeight")
def _infer(op: Any, block: Any, x: Any, weight: Any) -> None:
    if len(x.shape) != 2 or len(weight.shape) != 2:
        raise refuse(op, block, "X and LSTMWeight must have 2 dimensions.")
    width, size = x.shape[1], weight.shape[1] // 4
    wanted = {
        "LSTMWeight": (size + width, 4 * size),
        "LSTMBias": (1, 4 * size),
        "AttentionWeight": (width + size, 1),
        "AttentionBias": (1, 1),
        "AttentionScalar": (1, 1),
        "AttentionScalarBias": (1, 1),
    }
    for slot, shape in wanted.items():
        var = input_var(op, block, slot)
        if var is not None and var.shape != shape:
            raise refuse(op, block, f"{slot} must have shape {shape}.")
    for slot in ("Hidden", "Cell"):
        set_output(op, block, slot, (x.shape[0], size), x.dtype, x.lod_level)
    set_output(op, block, "AttentionedX", (x.shape[0], 1), x.dtype)
    set_output(op, block, "AttentionFCOut", (-1, 1), x.dtype)
    set_output(op, block, "LSTMX", (1, width), x.dtype)
    set_output(op, block, "LSTMOUT", (1, 4 * size), x.dtype)


def _weights(
    scores: Tensor, scalar: Tensor | None, scalar_bias: Tensor | None, inside: Tensor
) -> Tensor:
    """Return softmax over the steps of each sequence, [sequences, steps]."""
    scores = torch.relu(scores)
    if scalar is not None:
        scores = scores * scalar
        scores = torch.relu(scores if scalar_bias is None else scores + scalar_bias)
    return scores.masked_fill(~inside, float("-inf")).softmax(1).masked_fill(~inside, 0.0)


@op(
    "attention_lstm",
    inputs="X C0 H0? AttentionWeight AttentionBias? AttentionScalar? AttentionScalarBias? "
    "LSTMWeight LSTMBias",
    outputs="Hidden Cell AttentionedX AttentionFCOut LSTMX LSTMOUT",
    grad=None,
    infer=_infer,
)
def attention_lstm(
    x: Tensor,
    c0: Tensor,
    h0: Tensor | None,
    attention: Tensor,
    attention_bias: Tensor | None,
    scalar: Tensor | None,
    scalar_bias: Tensor | None,
    weight: Tensor,
    bias: Tensor,
    *,
    gate_activation: str = "sigmoid",
    cell_activation: str = "tanh",
    candidate_activation: str = "tanh",
    lod: Lods,
) -> tuple[Any, ...]:
    """Return states of all steps, the inputs' part of the scores, and values of the last step."""
    offsets = lod_of(lod, "X", "attention_lstm")[0]
    lengths = lengths_of(offsets)
    if len(c0) != len(lengths):
        raise ValueError(f"attention_lstm got {len(lengths)} sequences, but {len(c0)} cells.")
    act_gate, act_cell, act_candidate = map(
        activation_named, (gate_activation, cell_activation, candidate_activation)
    )
    width, size = x.shape[1], weight.shape[1] // 4
    scores = x @ attention[:width]
    if attention_bias is not None:
        scores = scores + attention_bias
    at = segment_ids(offsets, x.device), positions(offsets, x.device)
    steps = max(lengths, default=0)
    padded = x.new_zeros((len(lengths), steps, width))
    given = x.new_zeros((len(lengths), steps))
    inside = torch.zeros_like(given, dtype=torch.bool)
    padded[at], given[at], inside[at] = x, scores.reshape(-1), True
    hidden = torch.zeros_like(c0) if h0 is None else h0
    cell = c0
    hiddens = x.new_zeros((len(lengths), steps, size))
    cells = torch.zeros_like(hiddens)
    share = x.new_zeros((1, 0))
    mixed, parts = x.new_zeros((1, width)), x.new_zeros((1, 4 * size))
    for step in range(steps):
        going = inside[:, step, None]
        now_share = _weights(given + cell @ attention[width:], scalar, scalar_bias, inside)
        now_mixed = torch.einsum("ns,nsm->nm", now_share, padded)
        gates = now_mixed @ weight[size:] + hidden @ weight[:size] + bias
        forget, enter, leave = act_gate(gates[:, : 3 * size]).split(size, 1)
        candidate = act_candidate(gates[:, 3 * size :])
        added = enter * candidate
        cell = torch.where(going, forget * cell + added, cell)
        shown = act_cell(cell)
        hidden = torch.where(going, shown * leave, hidden)
        hiddens[:, step], cells[:, step] = hidden, cell
        if step == lengths[-1] - 1:
            share, mixed = now_share[-1:], now_mixed[-1:]
            parts = torch.cat([shown, added, leave, candidate], 1)[-1:]
    rest = (WithLod(value, None) for value in (scores, share.reshape(-1, 1), mixed, parts))
    return hiddens[at], cells[at], *rest
