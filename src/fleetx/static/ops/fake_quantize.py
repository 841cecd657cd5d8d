"""Ops of quantization-aware training: values rounded to the steps of a few bits, in float.

A scale is the largest absolute value: of the tensor, of a channel, or as a moving average.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from fleetx.static.graph.op_registry import op
from fleetx.static.shapes.infer_rules import input_var, refuse, same_as, set_output


def _steps(bits: int) -> int:
    return (1 << (bits - 1)) - 1


def _rounded(x: Tensor, scale: Tensor, bits: int) -> Tensor:
    """Return the number of the nearest step, halves away from zero as in C."""
    inverse = torch.where(scale < 1e-30, scale + 1e-6, scale).reciprocal()
    clipped = torch.minimum(torch.maximum(x, -scale), scale) * (_steps(bits) * inverse)
    return clipped.sign() * (clipped.abs() + 0.5).floor()


def _infer(op: Any, block: Any) -> None:
    bits = op.attrs.get("bit_length", 8)
    if not 1 <= bits <= 16:
        raise refuse(op, block, f"bit_length must be between 1 and 16, not {bits}.")
    x = input_var(op, block, "X")
    if x is None:
        return
    same_as()(op, block)
    channels = op.type == "fake_channel_wise_quantize_abs_max"
    set_output(op, block, "OutScale", (x.shape[0] if channels else 1,), x.dtype)
    for slot in ("OutState", "OutAccum"):
        set_output(op, block, slot, (1,), x.dtype)


@op("fake_quantize_abs_max", outputs="Out OutScale", grad=None, infer=_infer)
def fake_quantize_abs_max(x: Tensor, *, bit_length: int = 8) -> tuple[Tensor, Tensor]:
    """Round to steps of the largest absolute value."""
    scale = x.abs().max().reshape(1)
    return _rounded(x, scale, bit_length), scale


@op("fake_channel_wise_quantize_abs_max", outputs="Out OutScale", grad=None, infer=_infer)
def fake_channel_wise_quantize_abs_max(x: Tensor, *, bit_length: int = 8) -> tuple[Tensor, Tensor]:
    """Round each channel, along the first dimension, to steps of its largest absolute value."""
    scale = x.abs().flatten(1).amax(1)
    wide = scale.reshape(-1, *[1] * (x.dim() - 1))
    return _rounded(x, wide, bit_length), scale


def _moving_scale(
    x: Tensor, accum: Tensor | None, state: Tensor | None, rate: float, op_type: str
) -> tuple[Tensor, Tensor, Tensor]:
    """Return scale, state and sum of the moving average of the largest absolute value."""
    if accum is None or state is None:
        raise ValueError(f"{op_type} needs InAccum and InState unless is_test is True.")
    state = rate * state.detach() + 1
    accum = rate * accum.detach() + x.detach().abs().max()
    return accum / state, state, accum


def _define_moving(name: str, back: bool) -> None:
    """Define the op that rounds to a moving average, and back to values if wanted."""

    def compute(
        x: Tensor,
        given: Tensor,
        accum: Tensor | None,
        state: Tensor | None,
        *,
        bit_length: int = 8,
        moving_rate: float = 0.9,
        is_test: bool = False,
    ) -> tuple[Tensor | None, ...]:
        found: tuple[Tensor, Tensor | None, Tensor | None] = (given, state, accum)
        if not is_test:
            found = _moving_scale(x, accum, state, moving_rate, name)
        scale = found[0]
        out = _rounded(x.detach(), scale, bit_length)
        if back:
            out = out * scale / _steps(bit_length)
            # The gradient passes as if nothing was rounded.
            out = x + (out - x.detach())
        return out, *found

    op(
        name,
        inputs="X InScale! InAccum?! InState?!",
        outputs="Out OutScale OutState? OutAccum?",
        grad="auto" if back else None,
        infer=_infer,
    )(compute)


@op(
    "moving_average_abs_max_scale",
    inputs="X InAccum?! InState?!",
    outputs="Out OutScale OutState? OutAccum?",
    grad=None,
    infer=_infer,
)
def moving_average_abs_max_scale(
    x: Tensor,
    accum: Tensor | None,
    state: Tensor | None,
    *,
    moving_rate: float = 0.9,
    is_test: bool = False,
) -> tuple[Tensor | None, ...]:
    """Return X itself, and the moving average of its largest absolute value."""
    if is_test:
        return x, None, None, None
    return x, *_moving_scale(x, accum, state, moving_rate, "moving_average_abs_max_scale")


_define_moving("fake_quantize_moving_average_abs_max", back=False)
_define_moving("fake_quantize_dequantize_moving_average_abs_max", back=True)


@op("fake_dequantize_max_abs", inputs="X Scale", grad=None, infer=same_as())
def fake_dequantize_max_abs(x: Tensor, scale: Tensor, *, max_range: float = 127.0) -> Tensor:
    """Return the values of steps: x * scale / max_range."""
    return x * scale / max_range


@op("fake_channel_wise_dequantize_max_abs", inputs="X Scales*", grad=None, infer=same_as())
def fake_channel_wise_dequantize_max_abs(
    x: Tensor, scales: list[Tensor], *, quant_bits: list[int] = [8]
) -> Tensor:
    """Return the values of steps per channel: of weights, or of the output of a layer.

    One scale is that of each channel along the first dimension. Of two, the first is that of each
    channel along the second dimension, and the other that of the whole tensor.
    """
    axis = len(scales) - 1
    wide = scales[0].reshape(-1, *[1] * (x.dim() - axis - 1))
    out = x * wide
    for other in scales[1:]:
        out = out * other
    for bits in quant_bits[: len(scales)]:
        out = out / _steps(bits)
    return out
