"""Random states of Python, NumPy and torch: saved and restored, or shared by some workers."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch

from fleetx.comm.layout import Group


@contextmanager
def random_state_kept() -> Iterator[None]:
    """Put all generators back at the end of the block."""
    python, array, own = random.getstate(), np.random.get_state(), _states()
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(array)
        _set(*own)


class SharedRandomNumbers:
    """Random numbers of torch that some workers have in common, apart from those of their scripts:
    they draw the same dropout, but different samples."""

    def __init__(self, group: Group, seed: int = -1) -> None:
        """All workers of the group must call it; -1 takes a seed from the first one's state."""
        with random_state_kept():
            if seed < 0:
                seed = int(group.broadcast(torch.randint(2**62, ())))
            torch.manual_seed(seed)
            self._states = _states()

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Draw from these numbers in the block, and from the script's own afterwards."""
        own = _states()
        _set(*self._states)
        try:
            yield
        finally:
            self._states = _states()
            _set(*own)


def _states() -> tuple[torch.Tensor, list[torch.Tensor]]:
    """Return the states of torch's generators: that of the CPU, and those of GPUs if there are."""
    return torch.get_rng_state(), torch.cuda.get_rng_state_all()


def _set(cpu: torch.Tensor, devices: list[torch.Tensor]) -> None:
    torch.set_rng_state(cpu)
    torch.cuda.set_rng_state_all(devices)
