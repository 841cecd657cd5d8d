"""Ops of complex numbers: the conjugate, and the real and imaginary parts."""

from __future__ import annotations

import torch
from torch import Tensor

from fleetx.static.graph.op_registry import op


@op("conj")
def conj(x: Tensor) -> Tensor:
    """Return the conjugate as numbers of their own, not as a view that negates later."""
    return torch.conj_physical(x)


@op("real")
def real(x: Tensor) -> Tensor:
    """Return the real parts."""
    return torch.real(x).clone()


@op("imag")
def imag(x: Tensor) -> Tensor:
    """Return the imaginary parts."""
    return torch.imag(x).clone()
