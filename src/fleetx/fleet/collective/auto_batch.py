"""The first batch of a job with `auto`, on which candidates are tried."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from fleetx.techniques.tensors_inside import all_tensors


@dataclass(frozen=True, kw_only=True)
class Batch:
    """What the first training step gets: arguments of the model, and in `train_batch` the rest."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any] = field(default_factory=dict)
    targets: Any = None
    loss_fn: Callable[..., Any] | None = None
    """The loss of outputs and targets; None if the script computes it itself."""

    def loss(self, run: Callable[..., Any]) -> Tensor:
        """Return a scalar to differentiate: the loss, or one that depends on all outputs."""
        outputs = run(*self.args, **self.kwargs)
        return _mean(outputs) if self.loss_fn is None else self.loss_fn(outputs, self.targets)

    @property
    def samples(self) -> int:
        """The first dimension of the first tensor."""
        tensors = all_tensors((self.args, self.kwargs))
        return next((len(t) for t in tensors if t.dim()), 1)


def _mean(outputs: Any) -> Tensor:
    """Return a scalar that depends on all outputs of the model."""
    parts = [t.float().mean() for t in all_tensors(outputs) if t.requires_grad]
    if not parts:
        raise ValueError("the model returns nothing that can be trained, so auto cannot try it.")
    return torch.stack(parts).sum()
