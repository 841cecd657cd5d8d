"""The continuous value model of click prediction: shows and clicks as features of an embedding."""

from __future__ import annotations

from typing import Any

import torch

from fleetx.static.graph.op_registry import op


def with_log_counts(x: torch.Tensor, use_cvm: bool) -> torch.Tensor:
    """Return x with log(show + 1) and log(click + 1) - log(show + 1), or without both."""
    if not use_cvm:
        return x[:, 2:].clone()
    logs = torch.log(x[:, :2] + 1.0)
    return torch.cat([logs[:, :1], logs[:, 1:] - logs[:, :1], x[:, 2:]], 1)


class _Cvm(torch.autograd.Function):
    """Logarithms of the first two columns, whose 'gradients' are the shows and clicks themselves.

    A parameter server adds those to the counts that it keeps with each embedding.
    """

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, cvm: torch.Tensor, use_cvm: bool) -> torch.Tensor:
        ctx.save_for_backward(cvm)
        ctx.use_cvm = use_cvm
        return with_log_counts(x, use_cvm)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor | None, ...]:  # type: ignore[override]
        (cvm,) = ctx.saved_tensors
        rest = grads[0][:, 2:] if ctx.use_cvm else grads[0]
        return torch.cat([cvm.to(rest.dtype), rest], 1), None, None


@op("cvm", inputs="X CVM!", outputs="Y")
def _cvm(x: torch.Tensor, cvm: torch.Tensor, *, use_cvm: bool = True) -> torch.Tensor:
    return _Cvm.apply(x, cvm, use_cvm)
