"""A cluster that is described, not reached: workers, machines, memory, links and speed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

_UNITS = {"": 1.0, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
_NUMBER = re.compile(r"\s*([0-9]*\.?[0-9]+)\s*([KMGTP]?)(I?)\s*([A-Z/]*)\s*", re.IGNORECASE)

_PAYLOAD = 1448 / 1514
"""What TCP carries in a full Ethernet frame: 14 bytes of it are Ethernet's header, 20 IP's and 32
TCP's with timestamps."""


def quantity(text: str, units: Sequence[str]) -> float:
    """Return a number with a unit, such as "24GB" or "10Gbit", in bytes, bytes per second or
    operations per second.

    Raises ValueError unless the unit is one of `units`; bits become bytes.
    """
    found = _NUMBER.fullmatch(text)
    unit = found[4].lower().removesuffix("/s") if found else ""
    unit = unit if unit in units else unit.removesuffix("ps")
    if found is None or unit not in units or not float(found[1]):
        raise ValueError(f"{text!r} is not a quantity: write a number such as 24G{units[0]}.")
    power = found[2].upper()
    scale = 1024.0 ** "KMGTP".find(power) * 1024 if found[3] else _UNITS[power]
    return float(found[1]) * scale / (8 if unit == "bit" else 1)


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """The hardware that a job would run on."""

    workers: int
    per_machine: int
    """Workers per machine, with consecutive ranks."""
    memory: float
    """Memory of a worker, in bytes."""
    bandwidth: float
    """Bytes per second between machines, in each direction of a machine's link."""
    inside: float
    """Bytes per second between two workers of a machine."""
    flops: float
    """Operations per second of a worker in training."""
    device: str = "cuda"
    """The device type: on `cpu`, Gloo implements reduce-scatter by a whole all-reduce."""
    adding: float = 8e9
    """Bytes of a tensor that a CPU core adds to another one per second; memory limits that."""

    def __post_init__(self) -> None:
        if self.workers % self.per_machine:
            raise ValueError(
                f"--workers {self.workers} cannot be divided into machines of --per-machine "
                f"{self.per_machine}: choose a divisor of {self.workers}."
            )

    @property
    def payload_rate(self) -> float:
        """Bytes of messages per second between machines: Gloo's travel in TCP."""
        return self.bandwidth * (_PAYLOAD if self.device == "cpu" else 1.0)

    def crossings(self, groups: Sequence[Sequence[int]]) -> int:
        """Return how many rings leave the busiest machine, one per group of workers."""
        leaving: dict[int, int] = {}
        for group in groups:
            for rank, following in pairwise([*group, group[0]]):
                machine = rank // self.per_machine
                if machine != following // self.per_machine:
                    leaving[machine] = leaving.get(machine, 0) + 1
        return max(leaving.values(), default=0)
