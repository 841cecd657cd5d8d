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
    python, array, cpu = random.getstate(), np.random.get_state(), torch.get_rng_state()
    devices = torch.cuda.get_rng_state_all()  # none where there is no GPU
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(array)
        torch.set_rng_state(cpu)
        torch.cuda.set_rng_state_all(devices)


class SharedRandomNumbers:
    """Random numbers of torch that some workers have in common, apart from those of their scripts:
    they draw the same dropout, but different samples."""

    def __init__(self, group: Group, seed: int = -1) -> None:
        """All workers of the group must call it; -1 takes a seed from the first one's state."""
        with random_state_kept():
            if seed < 0:
                seed = int(group.broadcast(torch.randint(2**62, ())))
            torch.manual_seed(seed)
            self._cpu, self._devices = _states()

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Draw from these numbers in the block, and from the script's own afterwards."""
        own = _states()
        _set(self._cpu, self._devices)
        try:
            yield
        finally:
            self._cpu, self._devices = _states()
            _set(*own)


def _states() -> tuple[torch.Tensor, list[torch.Tensor]]:
    return torch.get_rng_state(), torch.cuda.get_rng_state_all()


def _set(cpu: torch.Tensor, devices: list[torch.Tensor]) -> None:
    torch.set_rng_state(cpu)
    torch.cuda.set_rng_state_all(devices)
