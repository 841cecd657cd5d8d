"""Hash values of groups of ids: XXH64, so that programs find the rows that Paddle trained.

The algorithm works on unsigned 64-bit words; int64 tensors hold their bit patterns. Sums and
products wrap around alike, and shifts to the right mask the copies of the sign bit.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from fleetx.static.graph.op_registry import Long, op
from fleetx.static.shapes.infer_rules import known, refuse, set_output


def _signed(value: int) -> int:
    """Return the int64 with the bit pattern of an unsigned number."""
    value %= 1 << 64
    return value - (1 << 64) if value >> 63 else value


_PRIME_1 = _signed(11400714785074694791)
_PRIME_2 = _signed(14029467366897019727)
_PRIME_3 = _signed(1609587929392839161)
_PRIME_4 = _signed(9650029242287828579)
_PRIME_5 = _signed(2870177450012600261)


def _shifted(x: Tensor, bits: int) -> Tensor:
    """Shift to the right as unsigned numbers."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)


def _rotated(x: Tensor, bits: int) -> Tensor:
    return (x << bits) | _shifted(x, 64 - bits)


def _mixed(state: Tensor | int, word: Tensor) -> Tensor:
    return _rotated(word * _PRIME_2 + state, 31) * _PRIME_1


def _stripes(words: Tensor, seeds: Tensor) -> Tensor:
    """Return the state after all groups of four words, [rows, seeds]."""
    starts = (_signed(_PRIME_1 + _PRIME_2), _PRIME_2, 0, _signed(-_PRIME_1))
    lanes = [(seeds + start).expand(len(words), -1) for start in starts]
    for first in range(0, words.shape[1] // 4 * 4, 4):
        lanes = [_mixed(lane, words[:, first + i, None]) for i, lane in enumerate(lanes)]
    turns = zip(lanes, (1, 7, 12, 18), strict=True)
    state = torch.stack([_rotated(lane, bits) for lane, bits in turns]).sum(0)
    for lane in lanes:
        state = (state ^ _mixed(0, lane)) * _PRIME_1 + _PRIME_4
    return state


def xxh64(rows: Tensor, seeds: Tensor) -> Tensor:
    """Return the XXH64 of the bytes of each row of int32 or int64, [rows, seeds], as int64."""
    size = rows.shape[1] * rows.element_size()
    tail = None
    words = rows
    if rows.dtype == torch.int32:
        halves = rows.to(torch.int64) & 0xFFFFFFFF
        even = rows.shape[1] // 2 * 2
        words = halves[:, 0:even:2] | (halves[:, 1:even:2] << 32)
        tail = halves[:, even:] if even < rows.shape[1] else None
    if words.shape[1] >= 4:
        state = _stripes(words, seeds)
    else:
        state = (seeds + _PRIME_5).expand(len(rows), -1)
    state = state + size
    for i in range(words.shape[1] // 4 * 4, words.shape[1]):
        state = _rotated(state ^ _mixed(0, words[:, i, None]), 27) * _PRIME_1 + _PRIME_4
    if tail is not None:
        state = _rotated(state ^ (tail * _PRIME_1), 23) * _PRIME_2 + _PRIME_3
    state = (state ^ _shifted(state, 33)) * _PRIME_2
    state = (state ^ _shifted(state, 29)) * _PRIME_3
    return state ^ _shifted(state, 32)


@known("X")
def _infer(op: Any, block: Any, x: Any) -> None:
    if len(x.shape) < 2:
        raise refuse(op, block, "ids need at least 2 dimensions, [rows, ids of a row].")
    if op.attr("mod_by") < 1 or op.attr("num_hash") < 1:
        settings = f"{op.attr('mod_by')} and {op.attr('num_hash')}"
        raise refuse(op, block, f"hash_size and num_hash must be positive, not {settings}.")
    set_output(op, block, "Out", (*x.shape[:-1], op.attr("num_hash"), 1), x.dtype)


@op("hash", grad=None, infer=_infer)
def hash_ids(x: Tensor, *, num_hash: int = 1, mod_by: Long = 100000) -> Tensor:
    """Return `num_hash` numbers below `mod_by` for the ids of each row: the seeds are 0, 1, ..."""
    rows = x.reshape(-1, x.shape[-1])
    found = xxh64(rows, torch.arange(num_hash, device=x.device))
    # The remainder of an unsigned number, in two steps that stay below 2**63.
    found = (_shifted(found, 1) % mod_by * 2 + (found & 1)) % mod_by
    return found.reshape(*x.shape[:-1], num_hash, 1).to(x.dtype)
