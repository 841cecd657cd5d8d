"""The focal loss of RetinaNet: cross entropy that down-weights easy examples."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from fleetx.static.graph.op_registry import op


@op("sigmoid_focal_loss", inputs="X Label! FgNum!")
def sigmoid_focal_loss(
    x: Tensor, label: Tensor, count: Tensor, *, gamma: float = 2.0, alpha: float = 0.25
) -> Tensor:
    """Return the loss of each class, divided by the number of examples that have one.

    Label 0 is the background, and class i has the label i + 1; rows with label -1 are ignored.
    """
    classes = torch.arange(1, x.shape[1] + 1, device=x.device)
    own = label.reshape(-1, 1)
    p = x.sigmoid()
    positive = (1 - p).pow(gamma) * F.logsigmoid(x) * alpha
    negative = p.pow(gamma) * F.logsigmoid(-x) * (1 - alpha)
    loss = torch.where(own == classes, -positive, torch.where(own != -1, -negative, 0.0))
    return loss / count.reshape(-1)[0].clamp_min(1).to(x.dtype)
