"""LSTM over padded sequences with all weights in one vector, laid out as cuDNN lays them out.

First the matrices of all layers and directions (four gates times the input, four times the state),
then their biases in the same order; the gates are input, forget, cell, output.
"""

from __future__ import annotations

from typing import Any

import torch

from fleetx.static.graph.op_registry import Attr, op
from fleetx.static.shapes.infer_rules import shapes


def _split(w: torch.Tensor, inputs: int, hidden: int, layers: int, ways: int) -> list[Any]:
    """Return the weights as torch's LSTM takes them: two matrices and two biases per direction."""
    shapes = [
        shape
        for layer in range(layers)
        for _ in range(ways)
        for shape in ((4 * hidden, inputs if layer == 0 else hidden * ways), (4 * hidden, hidden))
    ]
    sizes = [rows * columns for rows, columns in shapes] + [4 * hidden] * len(shapes)
    if w.numel() != sum(sizes):
        raise ValueError(f"The weights of this LSTM are {sum(sizes)} values, not {w.numel()}.")
    parts = w.reshape(-1).split(sizes)
    matrices = [part.view(shape) for part, shape in zip(parts, shapes, strict=False)]
    biases = parts[len(shapes) :]
    return [
        weight
        for i in range(0, len(shapes), 2)
        for weight in (*matrices[i : i + 2], *biases[i : i + 2])
    ]


def _results(op: Any, x: Any, h: Any) -> dict[str, Any]:
    width = op.attr("hidden_size") * (2 if op.attr("is_bidirec") else 1)
    last = (h.shape, x.dtype)
    return {"Out": ((*x.shape[:2], width), x.dtype), "last_h": last, "last_c": last}


@op(
    "cudnn_lstm",
    inputs="Input InitH InitC W Cache?!",
    outputs="Out last_h last_c",
    attrs={"max_len": Attr("INT", 0), "seed": -1},
    infer=shapes("Input InitH", _results),
    lod="none",
)
def cudnn_lstm(
    x: torch.Tensor,
    init_h: torch.Tensor,
    init_c: torch.Tensor,
    w: torch.Tensor,
    cache: torch.Tensor | None = None,
    *,
    dropout_prob: float = 0.0,
    is_bidirec: bool = False,
    input_size: int = 10,
    hidden_size: int = 100,
    num_layers: int = 1,
    is_test: bool = False,
) -> tuple[torch.Tensor, ...]:
    """Run an LSTM of several layers over [steps, batch, size]."""
    weights = _split(w, input_size, hidden_size, num_layers, 2 if is_bidirec else 1)
    state = [init_h, init_c]
    return torch.lstm(
        x, state, weights, True, num_layers, dropout_prob, not is_test, is_bidirec, False
    )
