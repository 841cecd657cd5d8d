"""A batch sampler for the `DataLoader` of a script whose workers come and go.

The sampler knows how the samples of an epoch are divided; `fleet.elastic_loader` passes it the next
batches, because only the loader sees which batches the script has used: a `DataLoader` with worker
processes prefetches batches long before.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Sized
from typing import Any

from torch.utils.data import DataLoader, Sampler

from fleetx.data.elastic_batches import EpochPlan, Share


class ElasticSampler(Sampler[list[int]]):
    """Divides the samples of an epoch among changing workers: `batch_sampler=` of a `DataLoader`.

    Pass the `DataLoader` to `fleet.elastic_loader` and iterate over what that returns.
    """

    def __init__(
        self,
        dataset: Sized,
        batch_size: int | None = None,
        *,
        global_batch_size: int | None = None,
        micro_batch_size: int | None = None,
        shuffle: bool = True,
        seed: int = 0,
    ) -> None:
        """Take the data set and the sizes of batches; see `fleet.elastic_loader` for them."""
        sizes = batch_size, global_batch_size, micro_batch_size
        self.plan = _plan(len(dataset), *sizes, shuffle=shuffle, seed=seed)
        """How to divide epochs."""
        self._shares: Sequence[Share] | None = None

    def take(self, shares: Sequence[Share]) -> None:
        """Yield these batches in the next iteration."""
        self._shares = shares

    def __len__(self) -> int:
        """Return the batches that were left of the epoch when the group was formed."""
        return len(self._planned())

    def __iter__(self) -> Iterator[list[int]]:
        """Yield the indices of batches."""
        return iter([share.samples for share in self._planned()])

    def _planned(self) -> Sequence[Share]:
        if self._shares is None:
            raise RuntimeError(
                "fleet.ElasticSampler has no batches yet, because they depend on the steps that "
                "are finished: iterate over `loader = fleet.elastic_loader(loader)`, not over the "
                "DataLoader itself."
            )
        return self._shares


def _plan(
    length: int,
    batch_size: int | None,
    global_batch_size: int | None,
    micro_batch_size: int | None,
    *,
    shuffle: bool,
    seed: int,
) -> EpochPlan:
    if (batch_size is None) == (global_batch_size is None):
        raise ValueError(
            "an elastic loader takes either batch_size (per worker) or global_batch_size "
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
    return EpochPlan(
        length=length,
        batch_size=size,
        keeps_global=global_batch_size is not None,
        shuffle=shuffle,
        seed=seed,
        most_at_once=micro_batch_size,
    )


def loader_of(dataset: Any, options: dict[str, Any]) -> DataLoader[Any]:
    """Return a `DataLoader` with an `ElasticSampler`, from what `fleet.elastic_loader` is given:
    such a `DataLoader` itself, or a data set with settings of the sampler and of `DataLoader`."""
    if isinstance(dataset, DataLoader):
        return _checked(dataset, options)
    for name in ("sampler", "batch_sampler", "drop_last"):
        if name in options:
            raise ValueError(
                f"fleet.elastic_loader decides itself which samples a worker gets: leave {name} "
                "out, or pass a DataLoader with batch_sampler=fleet.ElasticSampler(…)."
            )
    names = ("batch_size", "global_batch_size", "micro_batch_size", "shuffle", "seed")
    sizes = {name: options[name] for name in names if options[name] is not None}
    others = {name: value for name, value in options.items() if name not in names}
    samples = _samples_of(dataset)
    return DataLoader(samples, batch_sampler=ElasticSampler(samples, **sizes), **others)


def _checked(loader: DataLoader[Any], options: dict[str, Any]) -> DataLoader[Any]:
    usual = {"shuffle": True, "seed": 0}
    for name, value in options.items():
        if value is not None and value != usual.get(name):
            raise ValueError(
                f"fleet.elastic_loader(loader, {name}={value!r}): a DataLoader has its own "
                "settings; give it to fleet.ElasticSampler or to DataLoader."
            )
    if not isinstance(loader.batch_sampler, ElasticSampler):
        raise TypeError(
            "fleet.elastic_loader takes a DataLoader with batch_sampler=fleet.ElasticSampler(…), "
            f"not with a {type(loader.batch_sampler or loader.sampler).__name__}, which does not "
            "know the workers that come and go."
        )
    if not getattr(loader, "in_order", True):
        raise ValueError(
            "DataLoader(…, in_order=False) hands out batches in another order than its sampler, "
            "so that the samples of a step are unknown: leave in_order out."
        )
    return loader


def _samples_of(dataset: Any) -> Any:
    """Return a map-style dataset; a reader is called and read into memory."""
    if hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__"):
        return dataset
    if callable(dataset):
        return list(dataset())
    raise TypeError(
        "fleet.elastic_loader takes a data set with __len__ and __getitem__, or a reader (a "
        f"function that returns an iterator over samples), not a {type(dataset).__name__}: the "
        "samples of a lost worker must be accessible by index."
    )
