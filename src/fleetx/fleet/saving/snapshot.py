"""The content of a checkpoint at one moment: tensors by path, and everything else as JSON text.

A background save needs a copy that training does not change: see `copy_buffer.py`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from fleetx.fleet.saving.copy_buffer import CopyBuffer
from fleetx.fleet.saving.state_text import flatten


@dataclass(frozen=True)
class Snapshot:
    """The states of one worker."""

    text: bytes
    tensors: dict[str, torch.Tensor]


def take(states: Mapping[str, Any], buffer: CopyBuffer | None = None) -> Snapshot:
    """Return the states as they are to be written; copied if there is a buffer."""
    text, tensors = _separate(states)
    if buffer is not None:
        return Snapshot(text, buffer.copy(tensors))
    return Snapshot(text, {name: t.cpu().contiguous() for name, t in tensors.items()})


def prepare(states: Mapping[str, Any], buffer: CopyBuffer) -> None:
    """Reserve memory for a copy of states like these."""
    buffer.prepare(_separate(states)[1].values())


def _separate(states: Mapping[str, Any]) -> tuple[bytes, dict[str, torch.Tensor]]:
    tensors: dict[str, torch.Tensor] = {}
    return json.dumps(flatten(dict(states), "", tensors)).encode(), tensors
