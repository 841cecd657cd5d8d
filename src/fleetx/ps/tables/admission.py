"""Admission of ids to a table: those seen often enough, or admitted at random.

Only pushes count, so that a log of pushes suffices to reproduce the decisions. An id that is not
admitted reads as zeros and its gradients are dropped.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from fleetx.kernels import native
from fleetx.kernels.index import IdIndex
from fleetx.ps.tables.row_rules import EntrySpec


class CountAdmission:
    """Admission of an id when its next look-up is at least its n-th."""

    def __init__(self, needed: int) -> None:
        self._needed = needed
        self._clear()

    def _clear(self) -> None:
        self._index = IdIndex()
        self._counts = native.RowStore(8)

    def admit(self, ids: Tensor, counts: Tensor) -> Tensor:
        """Count each distinct id `counts` times; return which ids are admitted, as booleans."""
        rows, fresh = self._index.insert(ids)
        self._counts.grow(self._index.row_limit)
        total = torch.empty_like(rows)
        self._counts.gather(rows.numpy(), 0, 8, total.numpy())
        total[fresh] = 0  # a row may have belonged to another id
        total += counts
        self._counts.scatter(rows.numpy(), 0, 8, total.numpy())
        enter = total + 1 >= self._needed
        self._index.remove(ids[enter])
        return enter

    def state_dict(self) -> dict[str, Tensor]:
        """Return the ids not yet admitted, and their counts."""
        ids, rows = self._index.items()
        counts = torch.empty_like(rows)
        self._counts.gather(rows.numpy(), 0, 8, counts.numpy())
        return {"waiting_ids": ids, "waiting_counts": counts}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Replace the ids not yet admitted."""
        self._clear()
        if "waiting_ids" in state:
            rows, _ = self._index.insert(state["waiting_ids"])
            self._counts.grow(self._index.row_limit)
            self._counts.scatter(rows.numpy(), 0, 8, state["waiting_counts"].contiguous().numpy())

    @property
    def nbytes(self) -> int:
        """The memory used, in bytes."""
        return self._index.nbytes + 8 * self._index.row_limit


class ProbabilityAdmission:
    """Admission of an id with a probability at each push, decided by a hash."""

    def __init__(self, probability: float, *, seed: int) -> None:
        self._probability = probability
        self._seed = seed
        self.draws = 0
        """The number of decisions so far, which is part of the hash."""
        self.nbytes = 0
        """The memory used, in bytes."""

    def admit(self, ids: Tensor, counts: Tensor) -> Tensor:
        """Count each distinct id `counts` times; return which ids are admitted, as booleans."""
        self.draws += 1
        dice = torch.empty(len(ids), 1, dtype=torch.float64)
        native.uniform((self._seed + self.draws) % 2**64, ids.contiguous().numpy(), dice.numpy())
        return dice[:, 0] < 1.0 - (1.0 - self._probability) ** counts.double()

    def state_dict(self) -> dict[str, Tensor]:
        """Return the number of decisions; ids are not stored."""
        return {"draws": torch.tensor([self.draws])}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Continue after this many decisions."""
        self.draws = int(state["draws"][0]) if "draws" in state else 0


Admission = CountAdmission | ProbabilityAdmission
"""The admission rule of ids that have no row."""


def create_admission(spec: EntrySpec | None, *, seed: int) -> Admission | None:
    """Return the admission rule, or None if every id is admitted at once."""
    if spec is None or (spec.kind == "count" and spec.value <= 1):
        return None
    if spec.kind == "count":
        return CountAdmission(int(spec.value))
    return ProbabilityAdmission(spec.value, seed=seed)
