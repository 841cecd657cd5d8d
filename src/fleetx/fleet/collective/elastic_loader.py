"""Batches for workers that come and go: every sample of an epoch is used exactly once.

The position moves with finished steps. Batches of a discarded step are handed out again, to the
workers that are there then, and what a `DataLoader` has prefetched for another group is dropped.
In a job that is not elastic the loader divides the data among the fixed workers.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch.utils.data import DataLoader

from fleetx.data.elastic_batches import EpochPlan, Share
from fleetx.fleet.collective.elastic_training import ElasticTraining


class ElasticLoader:
    """Iterates over the batches of a data set; see `fleet.elastic_loader`."""

    def __init__(
        self,
        dataset: Any,
        plan: EpochPlan,
        training: ElasticTraining | None,
        place: tuple[int, int],
        options: dict[str, Any],
    ) -> None:
        """Take the data set, how to divide it, and the job's elastic training, if it is elastic.

        `place` is this worker's rank and the number of workers, `options` are those of DataLoader.
        """
        self.dataset = dataset
        self._plan = plan
        self._training = training
        self._rank, self._size = place
        self._options = options
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
                f"fleet.elastic_loader(…, micro_batch_size={plan.most_at_once}) adds up gradients "
                "in elastic jobs (fleetrun --elastic): leave it out, or set "
                "strategy.gradient_merge = True for a fixed number of parts."
            )

    @property
    def epoch(self) -> int:
        """The present epoch, counted from 0."""
        return self._epoch

    @property
    def counted(self) -> int:
        """The samples of the last batch that count: 0 if there were fewer than workers, and this
        worker got one of another's, with weight 0."""
        return self._counted

    @property
    def ends_step(self) -> bool:
        """Whether the last batch completes a step: always, but for parts of `micro_batch_size`."""
        return bool(self._handed_out and self._handed_out[-1].total)

    def epochs(self, count: int) -> Iterator[int]:
        """Yield the numbers of the epochs that are left until `count` are done.

        A newcomer begins in the epoch of the others.
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
        """Yield the batches that are left of the present epoch."""
        if self._training is not None and not self._is_in_epochs:
            raise RuntimeError(
                "a worker that joins an elastic job begins in the epoch of the others, so loop by "
                "`for epoch in loader.epochs(n):` around `for batch in loader:`."
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
        loader = DataLoader(
            self.dataset, batch_sampler=[share.samples for share in shares], **self._options
        )
        return zip(shares, loader, strict=True)

    # ---- the position, as the training moves it

    def take_place(self, rank: int, size: int) -> None:
        """Take part in a group; batches that were prepared for another are dropped."""
        self._rank, self._size = rank, size
        self._batches = None

    def finish_step(self) -> None:
        """Count what was handed out since the last step."""
        self._used = self._reached()
        self._handed_out.clear()

    def reached(self) -> list[int]:
        """Return the position after the present step."""
        return [self._epoch, self._reached()]

    def part(self) -> tuple[int, bool]:
        """Return the samples of the last batch that count, and whether it completes the step."""
        return self._counted, self.ends_step or not self._handed_out

    def divisor(self, size: int) -> float:
        """Return what this worker divides its gradient by: samples of all over its own."""
        total = sum(share.total for share in self._handed_out)
        count = sum(share.count for share in self._handed_out)
        if not total:  # the script takes its batches from elsewhere
            return size
        return total / count if count else float("inf")

    def state_dict(self) -> dict[str, Any]:
        """Return the position after the last finished step."""
        return {"epoch": self._epoch, "used": self._used}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a position."""
        self._begin_epoch(int(state["epoch"]))
        self._used = int(state["used"])


def samples_of(dataset: Any) -> Any:
    """Return a data set as samples with numbers: a reader, which is called, is read into memory."""
    if hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__"):
        return dataset
    if callable(dataset):
        return list(dataset())
    raise TypeError(
        "fleet.elastic_loader takes a data set with __len__ and __getitem__, or a reader (a "
        f"function that returns an iterator over samples), not a {type(dataset).__name__}: whoever "
        "takes a lost worker's samples must find them by number."
    )


def plan_epochs(
    dataset: Any,
    batch_size: int | None,
    global_batch_size: int | None,
    micro_batch_size: int | None,
    *,
    shuffle: bool,
    seed: int,
    options: dict[str, Any],
) -> EpochPlan:
    """Return how to divide a data set, from the arguments of `fleet.elastic_loader`."""
    if (batch_size is None) == (global_batch_size is None):
        raise ValueError(
            "fleet.elastic_loader takes either batch_size (per worker) or global_batch_size "
            f"(of all workers), but batch_size is {batch_size!r} and global_batch_size is "
            f"{global_batch_size!r}."
        )
    size = batch_size if global_batch_size is None else global_batch_size
    for number in (size, 1 if micro_batch_size is None else micro_batch_size):
        if not isinstance(number, int) or isinstance(number, bool) or number < 1:
            raise ValueError(f"a batch size must be a whole number of at least 1, not {number!r}.")
    assert size is not None
    if micro_batch_size is not None and global_batch_size is None:
        raise ValueError(
            f"micro_batch_size={micro_batch_size} divides a worker's part of global_batch_size, "
            f"but batch_size is {batch_size}: give global_batch_size, or a smaller batch_size."
        )
    for name in ("sampler", "batch_sampler", "drop_last"):
        if name in options:
            raise ValueError(
                f"fleet.elastic_loader decides itself which samples a worker gets: leave "
                f"{name} out."
            )
    return EpochPlan(
        length=len(dataset),
        batch_size=size,
        keeps_global=global_batch_size is not None,
        shuffle=shuffle,
        seed=seed,
        most_at_once=micro_batch_size,
    )
