"""Row convolution: each step sees a few future steps. Amodei et al., "Deep Speech 2", 2015."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from fleetx.static.graph.op_registry import op
from fleetx.static.shapes.lod import Lods, lengths_of, optional_lod


def _ahead(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Return the sum of x[t + w] weight[w] over w for sequences [..., steps, width]."""
    context, steps = weight.shape[0], x.shape[-2]
    padded = F.pad(x, [0, 0, 0, context - 1])
    out = padded.narrow(-2, 0, steps) * weight[0]
    for i in range(1, context):
        out = out + padded.narrow(-2, i, steps) * weight[i]
    return out


@op("row_conv", inputs="X Filter")
def _row_conv(x: torch.Tensor, weight: torch.Tensor, *, lod: Lods) -> torch.Tensor:
    found = None if lod is None else optional_lod(lod, "X")
    if found is None:
        return _ahead(x, weight)
    return torch.cat([_ahead(piece, weight) for piece in x.split(lengths_of(found[-1]))])


@op("conv_shift", inputs="X Y")
def conv_shift(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Convolve each row of X with a row of Y around its middle, in a circle."""
    width = y.shape[1]
    if width % 2 == 0 or width > x.shape[1]:
        raise ValueError(
            f"conv_shift takes an odd number of weights, at most as many as the {x.shape[1]} "
            f"columns of X, not {width}."
        )
    shifted = [torch.roll(x, width // 2 - j, 1) * y[:, j : j + 1] for j in range(width)]
    return torch.stack(shifted).sum(0)
