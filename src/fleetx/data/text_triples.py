"""Texts for learning to match: lines of a query, a text that was chosen and one that was not.

The three are separated by tabs, their words by spaces. A dictionary has one word per line; a word's
id is its line number, from 1, so that 0 is free for padding. Unknown words are dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fleetx.data.text_lines import (
    Files,
    Line,
    counting_reader,
    epoch_lines,
    list_files,
    parse_lines,
    read_lines,
)

if TYPE_CHECKING:
    from fleetx.data.sample_stream import SampleStream

Array = np.ndarray[Any, Any]
Sample = tuple[Array, Array, Array]


def load_words(path: str | Path, most: int | None = None) -> dict[str, int]:
    """Return the ids of a dictionary's words; `most` is the size of their table."""
    ids: dict[str, int] = {}
    for line in read_lines(list_files(path)):
        word = line.text.strip()
        if not word:
            continue
        if word in ids:
            raise line.error(f"the word {word!r} occurs twice.")
        ids[word] = line.number
        if most is not None and line.number >= most:
            raise line.error(f"the id {line.number} of {word!r} is outside a table of {most} rows.")
    if not ids:
        raise ValueError(f"The dictionary {path} is empty: it needs one word per line.")
    return ids


def parse_line(line: Line, ids: dict[str, int]) -> Sample:
    """Return the ids of the words of the three texts of a line."""
    texts = line.text.split("\t")
    if len(texts) != 3:
        raise line.error(
            f"{len(texts)} texts, but a line has 3, separated by tabs: a query, a text that was "
            "chosen and one that was not."
        )
    query, chosen, other = (
        np.array([ids[word] for word in text.split() if word in ids], "int64") for text in texts
    )
    for text, found in zip(texts, (query, chosen, other), strict=True):
        if not len(found):
            raise line.error(f"no word of {text!r} is in the dictionary.")
    return query, chosen, other


def reader(
    dict_path: str | Path,
    files: Files,
    *,
    words: int | None = None,
    shuffle: bool = False,
    seed: int = 0,
    shard: tuple[int, int] = (0, 1),
    on_error: str = "raise",
) -> Callable[[], Iterator[Sample]]:
    """Return a Paddle reader of three arrays of word ids.

    Args:
        dict_path: one word per line.
        files: a file, a folder or a list; names that end in .gz are decompressed.
        words: the number of rows of the table, which ids must fit.
        shuffle: shuffle the lines, differently in every pass.
        seed: the seed of shuffling.
        shard: (rank of this worker, number of workers); all get the same number of lines.
        on_error: "raise", or "skip" invalid lines with a warning that counts them.
    """
    return counting_reader(_samples(dict_path, files, words, shuffle, seed, shard, on_error))


def dataset(
    dict_path: str | Path,
    files: Files,
    *,
    shuffle: bool = False,
    seed: int = 0,
    shard: tuple[int, int] = (0, 1),
    on_error: str = "raise",
) -> SampleStream:
    """Return a data set for torch's DataLoader with `collate_fn=collate`; see `reader`."""
    from fleetx.data.sample_stream import SampleStream

    return SampleStream(_samples(dict_path, files, None, shuffle, seed, shard, on_error))


def collate(samples: list[Sample]) -> tuple[Any, ...]:
    """Return tensors [N, longest] of queries, chosen and rejected texts, padded with 0."""
    import torch

    return tuple(
        torch.nn.utils.rnn.pad_sequence(list(map(torch.from_numpy, texts)), batch_first=True)
        for texts in zip(*samples, strict=True)
    )


def _samples(
    dict_path: str | Path,
    files: Files,
    words: int | None,
    shuffle: bool,
    seed: int,
    shard: tuple[int, int],
    on_error: str,
) -> Callable[[int], Iterator[Sample]]:
    ids, lines = load_words(dict_path, words), epoch_lines(files, shard, shuffle, seed)
    return lambda epoch: parse_lines(lines(epoch), lambda line: parse_line(line, ids), on_error)
