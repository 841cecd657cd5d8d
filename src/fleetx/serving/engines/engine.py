"""A loaded model, independent of its engine."""

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
    """The inputs of the model."""

    outputs: tuple[TensorSpec, ...]
    """The outputs of the model."""

    files: tuple[Path, ...]
    """The files that determine the model's results, itself or by checksums of others."""

    call: Callable[[Sequence[Array]], list[Array]]
    """Computes the outputs from the inputs, both in order; may be called by any thread."""
