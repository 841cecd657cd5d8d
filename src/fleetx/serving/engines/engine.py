"""A loaded model, whatever computes it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fleetx.serving.tensor_spec import TensorSpec

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Engine:
    """A loaded model."""

    inputs: tuple[TensorSpec, ...]
    """What the model takes."""

    outputs: tuple[TensorSpec, ...]
    """What the model gives."""

    files: tuple[Path, ...]
    """All files that decide what the model computes."""

    call: Callable[[Sequence[Array]], list[Array]]
    """Computes the outputs, in order, from the inputs, in order; may be called by any thread."""
