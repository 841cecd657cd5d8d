"""Criteo's display-advertising lines: label, 13 numbers, 26 categories, separated by tabs.

Numbers are scaled by the ranges of Paddle's public wide&deep examples; a category becomes the hash
of its column and text. The hash is CRC-32, the same in every process and on every machine (Python's
own differs between runs). `python -m fleetx.data.criteo` converts lines on standard input to the
multi-slot format, as the pipe command of a dataset.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zlib import crc32

import numpy as np

from fleetx.data.data_generator import MultiSlotDataGenerator
from fleetx.data.text_lines import Files, Line, counting_reader, epoch_lines, parse_lines

if TYPE_CHECKING:
    from fleetx.data.sample_stream import SampleStream

Array = np.ndarray[Any, Any]
Sample = tuple[Array, Array, Array]

DENSE, SPARSE = 13, 26
SPARSE_FEATURE_DIM = 1000001
SLOTS = ("dense_input", *(f"C{i}" for i in range(1, SPARSE + 1)), "label")
_LEAST = np.array([0, -3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], "float64")
_RANGE = np.array([20, 603, 100, 50, 64000, 500, 100, 50, 500, 10, 10, 10, 50], "float64")
_STDIN = Path("standard input")
# A category is hashed together with the number of its field in the line.
_FIELDS = [str(field) for field in range(1 + DENSE, 1 + DENSE + SPARSE)]


def parse_line(line: Line, sparse_feature_dim: int = SPARSE_FEATURE_DIM) -> Sample:
    """Return (13 scaled numbers in float32, 26 row numbers in int64, [label] in int64).

    An empty number becomes 0 after scaling; an empty category is a separate category.
    """
    fields = line.text.split("\t")
    if len(fields) != 1 + DENSE + SPARSE:
        raise line.error(
            f"{len(fields)} fields, but a line of Criteo has {1 + DENSE + SPARSE}, separated by "
            "tabs: the label, 13 numbers, 26 categories."
        )
    if fields[0] not in ("0", "1"):
        raise line.error(f"the label must be 0 or 1, not {fields[0]!r}.")
    numbers = [
        _number(line, column, text) if text else _LEAST[column]
        for column, text in enumerate(fields[1 : 1 + DENSE])
    ]
    dense = ((np.array(numbers) - _LEAST) / _RANGE).astype("float32")
    sparse = np.fromiter(
        (
            crc32((field + text).encode()) % sparse_feature_dim
            for field, text in zip(_FIELDS, fields[1 + DENSE :], strict=True)
        ),
        np.int64,
        SPARSE,
    )
    return dense, sparse, np.array([int(fields[0])], "int64")


def _number(line: Line, column: int, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise line.error(f"number {column + 1} of {DENSE} is {text!r}, which is not a number.")
    return value


def dataset(
    files: Files,
    *,
    sparse_feature_dim: int = SPARSE_FEATURE_DIM,
    shuffle: bool = False,
    seed: int = 0,
    shard: tuple[int, int] = (0, 1),
    on_error: str = "raise",
) -> SampleStream:
    """Return a data set of (dense, sparse, label) for torch's DataLoader.

    Args:
        files: a file, a folder or a list; names that end in .gz are decompressed.
        sparse_feature_dim: the number of rows that categories are hashed to.
        shuffle: shuffle the lines, differently in every epoch.
        seed: the seed of shuffling.
        shard: (rank of this worker, number of workers); all get the same number of lines.
        on_error: "raise", or "skip" invalid lines with a warning that counts them.
    """
    from fleetx.data.sample_stream import SampleStream

    return SampleStream(_samples(files, sparse_feature_dim, shuffle, seed, shard, on_error))


def reader(
    files: Files,
    *,
    sparse_feature_dim: int = SPARSE_FEATURE_DIM,
    shuffle: bool = False,
    seed: int = 0,
    shard: tuple[int, int] = (0, 1),
    on_error: str = "raise",
) -> Callable[[], Iterator[tuple[Array, ...]]]:
    """Return a Paddle reader of the slots dense_input, C1 to C26, label; see `dataset`."""
    samples = _samples(files, sparse_feature_dim, shuffle, seed, shard, on_error)

    def slots(epoch: int) -> Iterator[tuple[Array, ...]]:
        for dense, sparse, label in samples(epoch):
            yield dense, *sparse.reshape(SPARSE, 1), label

    return counting_reader(slots)


def _samples(
    files: Files, dim: int, shuffle: bool, seed: int, shard: tuple[int, int], on_error: str
) -> Callable[[int], Iterator[Sample]]:
    if not 0 < dim < 2**32:
        raise ValueError(f"sparse_feature_dim must be from 1 to 2**32 - 1, not {dim}.")
    lines = epoch_lines(files, shard, shuffle, seed)
    return lambda epoch: parse_lines(lines(epoch), lambda line: parse_line(line, dim), on_error)


class CriteoGenerator(MultiSlotDataGenerator):
    """Generator of Criteo's lines in the multi-slot format: dense_input, C1 to C26, label."""

    def __init__(self, sparse_feature_dim: int = SPARSE_FEATURE_DIM) -> None:
        super().__init__()
        self._dim = sparse_feature_dim
        self._lines = 0

    def generate_sample(self, line: str | None) -> Callable[[], Iterator[Any]]:
        """Return a function that yields the only sample of a line."""
        self._lines += 1
        where = Line(_STDIN, self._lines, (line or "").rstrip("\r\n"))

        def sample() -> Iterator[Any]:
            dense, sparse, label = parse_line(where, self._dim)
            values = [dense.tolist(), *([row] for row in sparse.tolist()), label.tolist()]
            yield list(zip(SLOTS, values, strict=True))

        return sample


if __name__ == "__main__":
    CriteoGenerator(*map(int, sys.argv[1:2])).run_from_stdin()
