# ruff: noqa: PT028 - test() reads the test set; it is not a test.
"""IMDB: film reviews as (list of word numbers, 0 for positive or 1 for negative)."""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

from fleetx.data.local_files import files_in_tar, find_file

Sample = tuple[list[int], int]
WordIndex = dict[bytes | str, int]
_ARCHIVES = ("imdb%2FaclImdb_v1.tar.gz", "aclImdb_v1.tar.gz")
_PUNCTUATION = string.punctuation.encode()


def build_dict(
    pattern: re.Pattern[str], cutoff: int, data_dir: str | Path | None = None
) -> WordIndex:
    """Number the words of matching files that occur more than `cutoff` times, by frequency.

    Words are bytes; the last number is that of the str '<unk>', for all other words.
    """
    counts = Counter(word for words in tokenize(pattern, data_dir) for word in words)
    kept = sorted((-n, word) for word, n in counts.items() if n > cutoff)
    index: WordIndex = {word: i for i, (_, word) in enumerate(kept)}
    index["<unk>"] = len(kept)
    return index


def word_dict(data_dir: str | Path | None = None) -> WordIndex:
    """Number all words that occur more than 150 times in the reviews."""
    return build_dict(re.compile(r"aclImdb/(train|test)/(pos|neg)/.*\.txt$"), 150, data_dir)


def train(
    word_idx: WordIndex, data_dir: str | Path | None = None
) -> Callable[[], Iterator[Sample]]:
    """Return a reader of the training reviews."""
    return _reader("train", word_idx, data_dir)


def test(word_idx: WordIndex, data_dir: str | Path | None = None) -> Callable[[], Iterator[Sample]]:
    """Return a reader of the test reviews."""
    return _reader("test", word_idx, data_dir)


def tokenize(pattern: re.Pattern[str], data_dir: str | Path | None = None) -> Iterator[list[bytes]]:
    """Yield the lower-case words, without punctuation, of every file whose name matches."""
    path = find_file("imdb", *_ARCHIVES, data_dir=data_dir)
    for _, stream in files_in_tar(path, pattern.match):
        yield stream.read().translate(None, _PUNCTUATION).lower().split()


def _reader(
    part: str, word_idx: WordIndex, data_dir: str | Path | None
) -> Callable[[], Iterator[Sample]]:
    unknown = word_idx["<unk>"]
    samples = [
        ([word_idx.get(word, unknown) for word in words], label)
        for label, kind in enumerate(("pos", "neg"))
        for words in tokenize(re.compile(rf"aclImdb/{part}/{kind}/.*\.txt$"), data_dir)
    ]
    return lambda: iter(samples)
