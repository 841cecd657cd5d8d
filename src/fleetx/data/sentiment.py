# ruff: noqa: PT028 - test() reads the test set; it is not a test.
"""NLTK's movie reviews: (word indices, 0 for negative or 1 for positive), in alternation."""

from __future__ import annotations

import re
import zipfile
from collections import Counter
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

from fleetx.data.local_files import find_file

Sample = tuple[list[int], int]
_TRAINING = 1600
_TOKEN = re.compile(r"\w+|[^\w\s]+")


def get_word_dict(data_dir: str | Path | None = None) -> list[tuple[str, int]]:
    """Return (word, index) of all words, the most frequent first."""
    return _numbered(_reviews(data_dir))


def train(data_dir: str | Path | None = None) -> Iterator[Sample]:
    """Return an iterator over the first 1600 reviews."""
    return iter(_samples(data_dir)[:_TRAINING])


def test(data_dir: str | Path | None = None) -> Iterator[Sample]:
    """Return an iterator over the other reviews."""
    return iter(_samples(data_dir)[_TRAINING:])


def _samples(data_dir: str | Path | None) -> list[Sample]:
    negative, positive = reviews = _reviews(data_dir)
    index = dict(_numbered(reviews))
    pairs = zip(negative, positive, strict=False)
    return [
        ([index[word] for word in words], label)
        for pair in pairs
        for label, words in enumerate(pair)
    ]


def _reviews(data_dir: str | Path | None) -> tuple[list[list[str]], list[list[str]]]:
    """Return the words of the negative and of the positive reviews."""
    path = find_file("corpora", "movie_reviews.zip", data_dir=data_dir)
    with zipfile.ZipFile(path) as archive:
        negative, positive = (
            [
                _TOKEN.findall(archive.read(name).decode("utf-8").lower())
                for name in sorted(archive.namelist())
                if re.fullmatch(rf"(.*/)?movie_reviews/{kind}/[^/]+\.txt", name)
            ]
            for kind in ("neg", "pos")
        )
    if not negative or not positive:
        raise ValueError(f"{path} holds no reviews movie_reviews/neg/*.txt and pos/*.txt.")
    return negative, positive


def _numbered(reviews: tuple[list[list[str]], list[list[str]]]) -> list[tuple[str, int]]:
    counts = Counter(word for words in chain(*reviews) for word in words)
    return [(word, index) for index, (word, _) in enumerate(counts.most_common())]
