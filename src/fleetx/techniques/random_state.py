"""Save and restore the random states of Python, NumPy and torch."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch


@contextmanager
def random_state_kept() -> Iterator[None]:
    """Put all generators back at the end of the block."""
    python, array, cpu = random.getstate(), np.random.get_state(), torch.get_rng_state()
    devices = torch.cuda.get_rng_state_all()  # none where there is no GPU
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(array)
        torch.set_rng_state(cpu)
        torch.cuda.set_rng_state_all(devices)
