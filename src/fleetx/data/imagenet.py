"""ImageNet as a data set: sharded over workers, reproducible by seed, resumable.

    data = ImageNet("ImageNet", "train", batch_size=32)
    for images, labels in data.loader(num_workers=4): ...

Every image is read once per epoch by all workers and their loader processes together. The batches
do not depend on the number of loader processes. `reader()` returns the same as a Paddle reader.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.utils.data import IterableDataset, get_worker_info

from fleetx.data.image_decode import UnreadableImage
from fleetx.data.imagenet_augment import Augment, Pictures, draw
from fleetx.data.imagenet_list import DataError, ImageList, Problem, check_on_error, read_list
from fleetx.data.imagenet_shards import (
    once_order,
    paddle_count,
    paddle_order,
    place_in_job,
    shard,
    shard_size,
)

Array = np.ndarray[Any, Any]
_SHARDINGS = ("once", "paddle")
_READERS = ("samples", "sample_lists", "batches")


class Step(NamedTuple):
    """The result of one reading step: a batch, or one sample."""

    content: Any
    """(images, labels), or (image, label) without a batch size; None if nothing was readable."""
    read: int
    """The number of images of the list that it covers, readable or not."""
    skipped: tuple[Problem, ...]


class ImageNet(IterableDataset[Any]):
    """Images and labels of one worker, as float32 (or bytes) [batch, 3, size, size] and int64."""

    def __init__(
        self,
        root: str | Path,
        phase: str = "train",
        *,
        batch_size: int | None = None,
        list_file: str | Path | None = None,
        shuffle: bool | None = None,
        seed: int = 0,
        epoch: int = 0,
        rank: int | None = None,
        world_size: int | None = None,
        sharding: str = "once",
        drop_last: bool = False,
        augment: Augment | None = None,
        num_classes: int = 1000,
        on_error: str = "raise",
        dtype: str = "float32",
    ) -> None:
        """Read the list `root/<phase>.txt` (or `list_file`); images are in `root/<phase>/`.

        Any phase but "train" is for validation: no shuffling, no randomness. With a batch size the
        data set yields batches, otherwise single samples. `rank` and `world_size` are fleet's by
        default. `drop_last` drops incomplete batches, so that all workers run the same number of
        steps; `sharding="paddle"` achieves that by reading some images twice, in the order of
        Paddle's reader. `on_error="skip"` skips invalid lines and unreadable images and
        lists them in `skipped`. With `dtype="uint8"` images remain bytes; `normalize` does the
        rest, on their device.
        """
        check_on_error(on_error)
        _check_choice("sharding", sharding, _SHARDINGS)
        _check_choice("dtype", dtype, ("float32", "uint8"))
        if (rank is None) != (world_size is None):
            raise ValueError(f"rank={rank} and world_size={world_size} must be given together.")
        if rank is not None and not 0 <= rank < (world_size or 0):
            raise ValueError(f"rank={rank} must be in 0..world_size-1 (world_size={world_size}).")
        if batch_size is not None and batch_size < 1:
            raise ValueError(f"batch_size={batch_size} must be at least 1.")
        if not 0 <= seed < 2**63:
            raise ValueError(f"seed={seed} must be in 0..2**63-1.")
        file = Path(root) / f"{phase}.txt" if list_file is None else Path(list_file)
        folder = None if list_file is None else Path(root) / phase
        if folder is not None and not folder.is_dir():
            folder = Path(root)
        self.images: ImageList = read_list(
            file, folder=folder, num_classes=num_classes, on_error=on_error
        )
        self.phase = phase
        self.batch_size = batch_size
        self.shuffle = phase == "train" if shuffle is None else shuffle
        self.seed = seed
        self.epoch = epoch
        self.sharding = sharding
        self.drop_last = drop_last
        self.augment = Augment() if augment is None else augment
        self.on_error = on_error
        self.dtype = dtype
        self.skipped: list[Problem] = list(self.images.skipped)
        self._place = None if rank is None or world_size is None else (rank, world_size)
        self._pictures = Pictures(self.augment)
        self._consumed = 0  # images of the order read by all workers together
        self._resume_at = 0  # where the next pass begins

    # -- the order -------------------------------------------------------------------------------
    @property
    def place(self) -> tuple[int, int]:
        """The rank of this worker and the number of workers."""
        return self._place or place_in_job()

    def _order(self) -> Array:
        count, world_size = len(self.images), self.place[1]
        if self.sharding == "paddle":
            return paddle_order(
                count, epoch=self.epoch, shuffle=self.shuffle, world_size=world_size
            )
        return once_order(count, seed=self.seed, epoch=self.epoch, shuffle=self.shuffle)

    def indices(self, start: int = 0) -> Array:
        """Return the indices of this worker's images in this epoch, after the first `start`."""
        rank, world_size = self.place
        order = self._order()
        return shard(order, rank=rank, world_size=world_size, start=start, even=self._even)

    @property
    def _even(self) -> int | None:
        return (self.batch_size or 1) if self.drop_last else None

    def __len__(self) -> int:
        """Return the number of batches (without a batch size: of samples) per epoch."""
        (rank, world_size), count = self.place, len(self.images)
        if self.sharding == "paddle":
            count = paddle_count(count, world_size)
        mine = shard_size(count, rank=rank, world_size=world_size, even=self._even)
        return -(-mine // (self.batch_size or 1))

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch, which determines order and randomness; a pass starts at its beginning.

        Setting the epoch of a loaded state keeps the position in it.
        """
        if epoch != self.epoch:
            self.epoch, self._consumed, self._resume_at = epoch, 0, 0

    def __getstate__(self) -> dict[str, Any]:
        # A newly started loader process does not know the job.
        return {**self.__dict__, "_place": self.place}

    # -- state -----------------------------------------------------------------------------------
    def state_dict(self) -> dict[str, Any]:
        """Return the position in the data, the same for all workers."""
        return {
            "epoch": self.epoch,
            "consumed": self._consumed,
            "seed": self.seed,
            "images": len(self.images),
            "shuffle": self.shuffle,
            "sharding": self.sharding,
            "world_size": self.place[1],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the position of a state; the next pass starts there."""
        for name, own in (
            ("images", len(self.images)),
            ("shuffle", self.shuffle),
            ("sharding", self.sharding),
        ):
            if state[name] != own:
                raise ValueError(
                    f"the state is from a data set with {name}={state[name]!r}, but this one has "
                    f"{name}={own!r}: use the same list and options to resume."
                )
        if self.sharding == "paddle" and state["world_size"] != self.place[1]:
            raise ValueError(
                f"sharding='paddle' cannot resume with {self.place[1]} workers a pass of "
                f"{state['world_size']}: use as many, or sharding='once'."
            )
        self.seed, self.epoch = int(state["seed"]), int(state["epoch"])
        self._consumed = self._resume_at = int(state["consumed"])

    def begin_pass(self) -> int:
        """Return where a pass starts; only the first one after loading a state is shortened."""
        start, self._resume_at = self._resume_at, 0
        self._consumed = start
        return start

    def note(self, step: Step) -> None:
        """Count a step that is returned to the trainer, and report its problems."""
        if step.skipped and self.on_error == "raise":
            raise DataError(step.skipped)
        self._consumed += step.read * self.place[1]
        self.skipped.extend(step.skipped)

    def end_pass(self) -> None:
        """Advance to the next epoch."""
        self.set_epoch(self.epoch + 1)

    # -- reading ---------------------------------------------------------------------------------
    def steps(self, start: int) -> Iterator[Step]:
        """Yield this process's share of the steps of the epoch, after the first `start` images.

        Loader processes alternate by batch, in the order in which the loader reads from them.
        """
        info = get_worker_info()
        index, count = (info.id, info.num_workers) if info else (0, 1)
        mine, size = self.indices(start), self.batch_size or 1
        for begin in range(index * size, len(mine), count * size):
            yield self._step(mine[begin : begin + size].tolist())

    def __iter__(self) -> Iterator[Any]:
        """Yield batches, or samples; in a loader process, its share of them."""
        for step in self.steps(self.begin_pass()):
            self.note(step)
            if step.content is not None:
                yield step.content
        self.end_pass()

    def loader(self, num_workers: int = 2, **options: Any) -> Any:
        """Return a `DataLoader` over this data set with a `state_dict`; see `ResumableLoader`."""
        from fleetx.data.resumable_loader import ResumableLoader

        return ResumableLoader(self, num_workers=num_workers, **options)

    def reader(
        self, kind: str = "sample_lists", *, num_workers: int = 0
    ) -> Callable[[], Iterator[Any]]:
        """Return a Paddle reader; every call of it is one pass.

        "samples" are (image, label), for `set_sample_generator`; "sample_lists" are lists of them,
        for `set_sample_list_generator`; "batches" are arrays, for `set_batch_generator`.
        """
        _check_choice("kind", kind, _READERS)
        if kind != "samples" and self.batch_size is None:
            raise ValueError(f"a reader of {kind} needs a data set with a batch_size.")

        def read() -> Iterator[Any]:
            for images, labels in self.loader(num_workers) if num_workers else self:
                if self.batch_size is None:
                    yield images.numpy(), labels
                elif kind == "batches":
                    yield images.numpy(), labels.numpy().reshape(-1, 1)
                else:
                    rows = list(zip(images.numpy(), labels.tolist(), strict=True))
                    yield from rows if kind == "samples" else [rows]

        return read

    def normalize(self, images: torch.Tensor) -> torch.Tensor:
        """Return a batch of bytes (`dtype="uint8"`) as the network expects it, on its device."""
        mean, std = (
            torch.tensor(values, device=images.device).view(3, 1, 1) * 255
            for values in (self.augment.mean, self.augment.std)
        )
        return (images - mean) / std

    def _step(self, numbers: list[int]) -> Step:
        size = self.augment.crop_size
        images = np.empty((len(numbers), 3, size, size), dtype=self.dtype)
        good: list[int] = []
        skipped: list[Problem] = []
        for number in numbers:
            try:
                self._write(number, images[len(good)])
            except (OSError, UnreadableImage) as error:
                skipped.append(self.images.problem(number, error))
            else:
                good.append(number)
        content: Any = None
        if good:
            labels = self.images.labels[good]
            content = (torch.from_numpy(images[: len(good)]), torch.from_numpy(labels))
            if self.batch_size is None:
                content = (content[0][0], int(labels[0]))
        return Step(content, len(numbers), tuple(skipped))

    def _write(self, number: int, out: Array) -> None:
        data = self.images.read(number)
        if self.phase == "train":
            self._pictures.train(data, draw(self.seed, self.epoch, number, 5), out)
        else:
            self._pictures.validation(data, out)


def _check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}, not {value!r}.")
