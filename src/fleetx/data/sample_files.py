"""Samples of a reader in pickled files, and a worker's shard of them."""

from __future__ import annotations

import glob
import pickle
from collections.abc import Callable, Iterator
from typing import IO, Any

from fleetx.checkpoint.pickle_reader import load_object


def split(
    reader: Callable[[], Iterator[Any]],
    line_count: int,
    suffix: str = "%05d.pickle",
    dumper: Callable[[list[Any], IO[bytes]], None] = pickle.dump,
) -> None:
    """Write the samples of a reader to files of `line_count` each; the first has one more.

    Args:
        reader: returns an iterator over samples.
        line_count: the number of samples of a file.
        suffix: the path of a file, with `%d` for its index.
        dumper: writes a list of samples to a binary file.
    """
    if not callable(dumper):
        raise TypeError(f"dumper must be a function of a list and a file, not {dumper!r}.")
    if line_count < 1:
        raise ValueError(f"line_count must be at least 1, not {line_count}.")
    lines: list[Any] = []
    index = 0
    for position, sample in enumerate(reader()):
        lines.append(sample)
        if position >= line_count and position % line_count == 0:
            _write(suffix % index, lines, dumper)
            lines = []
            index += 1
    if lines:
        _write(suffix % index, lines, dumper)


def cluster_files_reader(
    files_pattern: str,
    trainer_count: int,
    trainer_id: int,
    loader: Callable[[IO[bytes]], Any] | None = None,
) -> Callable[[], Iterator[Any]]:
    """Return a reader of every `trainer_count`-th file that matches, from `trainer_id` on.

    The default `loader` reads pickles of arrays and plain containers and rejects all others.
    """
    if loader is not None and not callable(loader):
        raise TypeError(f"loader must be a function of a file, not {loader!r}.")

    def reader() -> Iterator[Any]:
        for path in sorted(glob.glob(files_pattern))[trainer_id::trainer_count]:
            with open(path, "rb") as stream:
                yield from loader(stream) if loader else load_object(stream, source=path)

    return reader


def _write(path: str, lines: list[Any], dumper: Callable[[list[Any], IO[bytes]], None]) -> None:
    with open(path, "wb") as stream:
        dumper(lines, stream)
