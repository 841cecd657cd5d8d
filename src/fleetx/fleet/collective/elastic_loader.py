"""Batches for workers that come and go: every sample of an epoch is used exactly once.

The position moves with finished steps. Batches of a discarded step are distributed again, among the
workers of the next group, and batches that a `DataLoader` has prefetched for another group are
dropped. In a job that is not elastic the loader divides the data among the fixed workers.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch.utils.data import DataLoader

from fleetx.data.elastic_batches import Share
from fleetx.fleet.collective.elastic_sampler import ElasticSampler
from fleetx.fleet.collective.elastic_training import ElasticTraining


class ElasticLoader:
    """Iterates over the batches of a dataset; see `fleet.elastic_loader`."""

    def __init__(
        self,
        loader: DataLoader[Any],
        training: ElasticTraining | None,
        place: tuple[int, int],
    ) -> None:
        """Take a loader with an `ElasticSampler`, and the job's elastic training, if it is elastic.

        `place` is this worker's rank and the number of workers.
        """
        assert isinstance(loader.batch_sampler, ElasticSampler)
        self.dataset = loader.dataset
        self._loader, self._sampler = loader, loader.batch_sampler
        self._plan = plan = self._sampler.plan
        self._training = training
        self._rank, self._size = place
        self._epoch = 0
        self._used = 0
        self._counted = 0
        self._handed_out: list[Share] = []
        self._batches: Iterator[tuple[Share, Any]] | None = None
        self._is_in_epochs = False
        if training is not None:
            training.follow(self)
        elif plan.most_at_once is not None:
            raise ValueError(
                f"fleet.elastic_loader(…, micro_batch_size={plan.most_at_once}) accumulates "
                "gradients in elastic jobs (fleetrun --elastic) only: leave it out, or set "
                "strategy.gradient_merge = True for a fixed number of parts."
            )

    @property
    def epoch(self) -> int:
        """The current epoch, counted from 0."""
        return self._epoch

    @property
    def counted(self) -> int:
        """The number of samples of the last batch that count: 0 if there were fewer samples than
        workers and this worker got a copy of another's, with weight 0.
        """
        return self._counted

    @property
    def ends_step(self) -> bool:
        """Whether the last batch completes a step; False between parts of `micro_batch_size`."""
        return bool(self._handed_out and self._handed_out[-1].total)

    def epochs(self, count: int) -> Iterator[int]:
        """Yield the remaining epochs of `count`.

        A new worker starts in the epoch of the others.
        """
        self._is_in_epochs = True
        try:
            self._begin()
            while self._epoch < count:
                yield self._epoch
                self._begin()
        finally:
            self._is_in_epochs = False

    def __iter__(self) -> Iterator[Any]:
        """Yield the remaining batches of the current epoch."""
        if self._training is not None and not self._is_in_epochs:
            raise RuntimeError(
                "a worker that joins an elastic job starts in the epoch of the others, so loop "
                "with `for epoch in loader.epochs(n):` around `for batch in loader:`."
            )
        current = self._epoch
        while self._epoch <= current:  # a discarded step may have begun in the epoch before
            self._begin()
            if self._reached() >= self._plan.length:
                self._begin_epoch(self._epoch + 1)
                continue
            if self._batches is None:
                self._batches = self._load()
            share, batch = next(self._batches)
            self._counted = share.count
            self._handed_out.append(share)
            yield batch

    def _reached(self) -> int:
        return self._used + sum(share.total for share in self._handed_out)

    def _begin(self) -> None:
        if self._training is not None:
            self._training.begin()
        else:
            self.finish_step()

    def _begin_epoch(self, epoch: int) -> None:
        self._epoch, self._used = epoch, 0
        self._handed_out.clear()
        self._batches = None

    def _load(self) -> Iterator[tuple[Share, Any]]:
        shares = list(self._plan.shares(self._epoch, self._reached(), self._rank, self._size))
        self._sampler.take(shares)
        return zip(shares, self._loader, strict=True)

    # ---- the position, as the training moves it

    def take_place(self, rank: int, size: int) -> None:
        """Join a group, and drop batches that were prepared for another one."""
        self._rank, self._size = rank, size
        self._batches = None

    def finish_step(self) -> None:
        """Count the batches taken since the last step."""
        self._used = self._reached()
        self._handed_out.clear()

    def reached(self) -> list[int]:
        """Return the position after the current step, the same on all workers of the step."""
        return [self._epoch, self._reached()]

    def part(self) -> tuple[int, bool]:
        """Return the samples of the last batch that count, and whether it completes the step."""
        return self._counted, self.ends_step or not self._handed_out

    def divisor(self, size: int, *, last: bool = False) -> float:
        """Return what this worker divides its gradient by, so that the sum is the mean: the samples
        of all workers divided by its own, in the step or in the last batch.
        """
        shares = self._handed_out[-1:] if last else self._handed_out
        total = sum(share.total for share in shares)
        count = sum(share.count for share in shares)
        if not total:  # the script does not use this loader
            return size
        return total / count if count else float("inf")

    def state_dict(self) -> dict[str, Any]:
        """Return the position after the last finished step; without an elastic job, after the last
        batch that was taken.
        """
        used = self._reached() if self._training is None else self._used
        return {"epoch": self._epoch, "used": used}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a position."""
        self._begin_epoch(int(state["epoch"]))
        self._used = int(state["used"])
