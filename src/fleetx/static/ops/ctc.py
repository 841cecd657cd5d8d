"""Connectionist temporal classification: the loss, and the greedy reading of its outputs."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch.nn.utils.rnn import pad_sequence

from fleetx.static.graph.op_registry import op
from fleetx.static.shapes.infer_rules import shapes
from fleetx.static.shapes.lod import Lods, WithLod, lengths_of, lod_of, offsets_of


def _loss(op: Any, logits: Any) -> dict[str, Any]:
    shape = logits.shape if op.input("LogitsLength") else (-1, -1, logits.shape[-1])
    return {"Loss": ((shape[1], 1), logits.dtype), "WarpCTCGrad": (shape, logits.dtype)}


@op(
    "warpctc",
    inputs="Logits Label! LogitsLength?! LabelLength?!",
    outputs="WarpCTCGrad? Loss",
    infer=shapes("Logits", _loss),
    lod="none",
)
def _warpctc(
    logits: torch.Tensor,
    label: torch.Tensor,
    logits_length: torch.Tensor | None,
    label_length: torch.Tensor | None,
    *,
    blank: int = 0,
    norm_by_times: bool = False,
    lod: Lods,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return minus the log probability of each label sequence, and its gradient by the logits.

    Logits are a sequence per instance (LoD), or padded, [steps, batch, classes], with lengths.
    """
    if logits_length is None or label_length is None:
        steps = lengths_of(lod_of(lod, "Logits", "warpctc")[-1])
        sizes = lengths_of(lod_of(lod, "Label", "warpctc")[-1])
        logits = pad_sequence(list(logits.split(steps)))
        targets = label.reshape(-1)
        input_lengths, target_lengths = torch.tensor(steps), torch.tensor(sizes)
    else:
        input_lengths, target_lengths, targets = logits_length, label_length, label

    def cost(values: torch.Tensor) -> torch.Tensor:
        log_prob = F.log_softmax(values, -1)
        # The last argument: a label that does not fit into its steps costs nothing.
        sizes = input_lengths, target_lengths
        return F.ctc_loss(log_prob, targets.long(), *sizes, blank, "none", True)

    loss = cost(logits)
    with torch.enable_grad():
        again = logits.detach().requires_grad_()
        (gradient,) = torch.autograd.grad(cost(again).sum(), again)
    if norm_by_times:
        # Only the gradient is divided by the number of steps.
        share = loss / input_lengths.to(loss.dtype).to(loss.device)
        loss = share + (loss - share).detach()
    return gradient, loss.unsqueeze(1)


@op(
    "ctc_align",
    inputs="Input InputLength?",
    outputs="Output OutputLength?",
    grad=None,
    infer=shapes(
        "Input",
        lambda op, x: {
            "Output": ((-1, *x.shape[1:]), x.dtype),
            "OutputLength": ((x.shape[0], 1), x.dtype),
        },
    ),
)
def _ctc_align(
    x: torch.Tensor,
    lengths: torch.Tensor | None,
    *,
    blank: int = 0,
    merge_repeated: bool = True,
    padding_value: int = 0,
    lod: Lods,
) -> tuple[Any, Any]:
    """Drop repeated tokens, then blanks, of each sequence."""

    def read(tokens: list[int]) -> list[int]:
        kept, last = [], None
        for token in tokens:
            if token != blank and not (merge_repeated and token == last):
                kept.append(token)
            last = token
        return kept

    if lengths is None:
        offsets = lod_of(lod, "Input", "ctc_align")[-1]
        pieces = x.reshape(-1).split(lengths_of(offsets))
        found = [read(piece.tolist()) for piece in pieces]
        flat = [token for tokens in found for token in tokens]
        if not flat:  # Fluid's op has no empty result: one -1 stands for it
            empty = torch.full((1, 1), -1, dtype=x.dtype, device=x.device)
            return WithLod(empty, [[0, *([1] * len(found))]]), None
        out = torch.tensor(flat, dtype=x.dtype, device=x.device).unsqueeze(1)
        return WithLod(out, [offsets_of(len(f) for f in found)]), None
    rows = x.reshape(x.shape[0], -1)
    found = [
        read(row[:n].tolist()) for row, n in zip(rows, lengths.reshape(-1).tolist(), strict=True)
    ]
    out = torch.full_like(rows, padding_value)
    for i, tokens in enumerate(found):
        out[i, : len(tokens)] = torch.tensor(tokens, dtype=x.dtype)
    sizes = torch.tensor([[len(f)] for f in found], dtype=x.dtype, device=x.device)
    return out, sizes
