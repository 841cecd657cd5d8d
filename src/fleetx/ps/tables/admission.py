"""Which ids get a row: those seen often enough, or admitted at random.

Only pushes count, so that a log of pushes is all that is needed to come to the same decisions
again. An id that is not admitted reads as zeros and its gradients are dropped.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import torch
from torch import Tensor

from fleetx.kernels import native
from fleetx.kernels.index import IdIndex
from fleetx.ps.tables.table_spec import EntrySpec


class Admission(Protocol):
    """Decides about ids that have no row."""

    def admit(self, ids: Tensor, counts: Tensor) -> Tensor:
        """Note that distinct ids came `counts` times; tell which may enter, as booleans."""

    def state_dict(self) -> dict[str, Tensor]:
        """Return what it remembers, as named tensors."""

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Remember what `state_dict` gave; where it is missing, nothing."""

    @property
    def nbytes(self) -> int:
        """The memory it takes."""


class CountAdmission:
    """Lets an id in when its next look-up will be at least its n-th."""

    def __init__(self, needed: int) -> None:
        self._needed = needed
        self._clear()

    def _clear(self) -> None:
        self._index = IdIndex()
        self._counts = native.RowStore(8)

    def admit(self, ids: Tensor, counts: Tensor) -> Tensor:
        """Note that distinct ids came `counts` times; tell which may enter, as booleans."""
        rows, fresh = self._index.insert(ids)
        self._counts.grow(self._index.row_limit)
        total = torch.empty_like(rows)
        self._counts.gather(rows.numpy(), 0, 8, total.numpy())
        total[fresh] = 0  # a row may have been another id's before
        total += counts
        self._counts.scatter(rows.numpy(), 0, 8, total.numpy())
        enter = total + 1 >= self._needed
        self._index.remove(ids[enter])
        return enter

    def state_dict(self) -> dict[str, Tensor]:
        """Return the ids that wait, and how often they came."""
        ids, rows = self._index.items()
        counts = torch.empty_like(rows)
        self._counts.gather(rows.numpy(), 0, 8, counts.numpy())
        return {"waiting_ids": ids, "waiting_counts": counts}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Replace those that wait."""
        self._clear()
        if "waiting_ids" in state:
            rows, _ = self._index.insert(state["waiting_ids"])
            self._counts.grow(self._index.row_limit)
            self._counts.scatter(rows.numpy(), 0, 8, state["waiting_counts"].contiguous().numpy())

    @property
    def nbytes(self) -> int:
        """The memory it takes."""
        return self._index.nbytes + 8 * self._index.row_limit


class ProbabilityAdmission:
    """Lets an id in with a probability, each time it comes; the dice are a hash."""

    def __init__(self, probability: float, *, seed: int) -> None:
        self._probability = probability
        self._seed = seed
        self.draws = 0
        """How many times ids were decided about; part of the dice."""

    def admit(self, ids: Tensor, counts: Tensor) -> Tensor:
        """Note that distinct ids came `counts` times; tell which may enter, as booleans."""
        self.draws += 1
        dice = torch.empty(len(ids), 1, dtype=torch.float64)
        native.uniform((self._seed + self.draws) % 2**64, ids.contiguous().numpy(), dice.numpy())
        return dice[:, 0] < 1.0 - (1.0 - self._probability) ** counts.double()

    def state_dict(self) -> dict[str, Tensor]:
        """Return how often the dice were thrown; nobody is remembered."""
        return {"draws": torch.tensor([self.draws])}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Go on after so many draws."""
        self.draws = int(state["draws"][0]) if "draws" in state else 0

    @property
    def nbytes(self) -> int:
        """The memory it takes."""
        return 0


def create_admission(spec: EntrySpec | None, *, seed: int) -> Admission | None:
    """Return what decides, or None where everybody may enter at once."""
    if spec is None or (spec.kind == "count" and spec.value <= 1):
        return None
    if spec.kind == "count":
        return CountAdmission(int(spec.value))
    return ProbabilityAdmission(spec.value, seed=seed)
