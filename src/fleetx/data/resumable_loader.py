"""A `DataLoader` whose position in the data can be saved and restored, with any `num_workers`.

The trainer's copy of the data set counts what was returned, not what the processes have read ahead.
The processes live as long as the loader; their start position is in shared memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch.utils.data import DataLoader, IterableDataset

from fleetx.data.imagenet import ImageNet, Step


class _Steps(IterableDataset[Step]):
    """The steps of a data set in a loader process, which start at a position in shared memory."""

    def __init__(self, data: ImageNet) -> None:
        self.data = data
        self.begin = torch.zeros(3, dtype=torch.int64).share_memory_()

    def tell(self, start: int) -> None:
        """Set the start of the next pass."""
        self.begin.copy_(torch.tensor([self.data.epoch, self.data.seed, start]))

    def __iter__(self) -> Iterator[Step]:
        epoch, seed, start = self.begin.tolist()
        self.data.epoch, self.data.seed = epoch, seed
        return self.data.steps(start)


class ResumableLoader:
    """Batches of a data set, prefetched by `num_workers` processes, with a `state_dict`."""

    def __init__(self, data: ImageNet, *, num_workers: int = 2, **options: Any) -> None:
        """Take the data set, and further options of `DataLoader` such as prefetch_factor."""
        self.dataset = data
        self._steps = _Steps(data)
        if num_workers:
            options = {"prefetch_factor": 2, "persistent_workers": True, **options}
        self._loader = DataLoader(self._steps, batch_size=None, num_workers=num_workers, **options)

    def __len__(self) -> int:
        return len(self.dataset)

    def __iter__(self) -> Iterator[Any]:
        """Start a pass; after it the data set is in the next epoch."""
        data = self.dataset
        self._steps.tell(data.begin_pass())
        for step in self._loader:
            data.note(step)
            if step.content is not None:
                yield step.content
        data.end_pass()

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the next pass."""
        self.dataset.set_epoch(epoch)

    def state_dict(self) -> dict[str, Any]:
        """Return the position in the data after the last returned batch."""
        return self.dataset.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the position of a state."""
        self.dataset.load_state_dict(state)
