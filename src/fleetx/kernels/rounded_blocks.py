"""Tensors quantised to 8 or 4 bits, with one scale per block of entries.

    message = scales (float32), then codes;  entry = scale * code,  |code| <= 127 or 7

The scale of a block is its largest magnitude divided by the largest code, so that the error of an
entry is at most half a scale. A block with an entry that is not finite has a scale of NaN, so that
checks of the result detect it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from fleetx.kernels import compiled

if TYPE_CHECKING or compiled.is_there("fleetx.kernels._rounded"):
    from fleetx.kernels import _rounded
else:  # torch's calls need about ten passes over memory; the bits are the same
    _rounded = None

BLOCK = 256
"""Entries that share a scale."""
BITS = (8, 4)
_SCALE_BYTES = 4


def message_bytes(entries: int, bits: int) -> int:
    """Return the size of the message for a number of entries."""
    blocks = -(-entries // BLOCK)
    return blocks * (_SCALE_BYTES + BLOCK * bits // 8)


def to_blocks(tensor: Tensor, bits: int) -> Tensor:
    """Return the message of bytes for a tensor, rounded to the nearest codes."""
    flat = tensor.reshape(-1)
    blocks = flat.new_zeros(-(-flat.numel() // BLOCK) * BLOCK)
    blocks[: flat.numel()] = flat
    blocks = blocks.view(-1, BLOCK)
    most = 2 ** (bits - 1) - 1
    # The scale that codes are computed with must be the transmitted float32.
    scales = (blocks.abs().amax(dim=1, keepdim=True) / most).float()
    scales = torch.where(scales.isfinite(), scales, torch.nan)
    divisors = torch.where(scales > 0, scales, 1.0).to(blocks.dtype)
    codes = (blocks / divisors).round_().clamp_(-most, most).nan_to_num_(0.0)
    codes = (codes + (most + 1)).to(torch.uint8)
    if bits == 4:
        codes = codes[:, ::2] | (codes[:, 1::2] << 4)
    return torch.cat([scales.reshape(-1).view(torch.uint8), codes.reshape(-1)])


def from_blocks(message: Tensor, like: Tensor, bits: int) -> Tensor:
    """Decode a message to a tensor with the shape and type of `like`."""
    blocks = -(-like.numel() // BLOCK)
    scales, codes = message.split([blocks * _SCALE_BYTES, message.numel() - blocks * _SCALE_BYTES])
    # A copy is aligned for float32.
    factors = scales.clone().view(torch.float32).view(-1, 1).to(like.dtype)
    if bits == 4:
        codes = torch.stack([codes & 15, codes >> 4], dim=1)
    values = (codes.view(blocks, BLOCK).to(like.dtype) - 2 ** (bits - 1)) * factors
    return values.view(-1)[: like.numel()].view(like.shape)


def take_message(residual: Tensor, bits: int, more: Tensor | None = None) -> Tensor:
    """Add `more` to a flat residual, take a message off it, and return the message."""
    if more is not None and more.numel() != residual.numel():
        raise ValueError(f"{more.numel()} entries cannot be added to {residual.numel()}.")
    if _is_plain(residual) and (more is None or _is_plain(more)):
        size = message_bytes(residual.numel(), bits)
        message = torch.empty(size, dtype=torch.uint8, device=residual.device)
        added = 0 if more is None else more.data_ptr()
        parts = residual.data_ptr(), added, residual.numel(), bits, message.data_ptr()
        _rounded.round_values(*parts)
        return message
    if more is not None:
        residual.add_(more)
    message = to_blocks(residual, bits)
    residual.sub_(from_blocks(message, residual, bits))
    return message


def add_messages(total: Tensor, bits: int, messages: Sequence[Tensor]) -> None:
    """Set a flat tensor to the sum of what messages stand for, added in their order."""
    size = message_bytes(total.numel(), bits)
    for each in messages:
        if each.numel() != size or each.dtype is not torch.uint8:
            raise ValueError(
                f"a message of {total.numel()} entries in {bits} bits has {size} bytes, not "
                f"{each.numel()} of {each.dtype}."
            )
    if _is_plain(total) and all(each.is_contiguous() and each.is_cpu for each in messages):
        addresses = [each.data_ptr() for each in messages]
        _rounded.add_messages(total.data_ptr(), total.numel(), bits, addresses)
        return
    total.zero_()
    for message in messages:
        total.add_(from_blocks(message, total, bits))


def _is_plain(tensor: Tensor) -> bool:
    """Return whether the compiled functions can be used."""
    is_single = tensor.dtype is torch.float32 and tensor.is_cpu
    return _rounded is not None and is_single and tensor.is_contiguous()
