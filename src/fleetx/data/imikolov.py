# ruff: noqa: PT028 - test() reads the test set; it is not a test.
"""Penn Treebank as Mikolov prepared it: n-grams of word numbers, or sentences shifted by a word."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from fleetx.data.local_files import files_in_tar, find_file

WordIndex = dict[bytes | str, int]
_ARCHIVES = ("imikolov%2Fsimple-examples.tgz", "simple-examples.tgz")
_TRAIN, _VALID = "ptb.train.txt", "ptb.valid.txt"


class DataType:
    """The output of a reader: n-grams, or pairs of sequences."""

    NGRAM = 1
    SEQ = 2


def build_dict(min_word_freq: int = 50, data_dir: str | Path | None = None) -> WordIndex:
    """Number the words that occur more than `min_word_freq` times, by frequency.

    Words are bytes; '<s>' and '<e>' (start and end of a sentence) and '<unk>' are str.
    """
    counts: Counter[bytes | str] = Counter()
    for name in (_TRAIN, _VALID):
        for line in _lines(name, data_dir):
            counts.update(line)
            counts.update(("<s>", "<e>"))
    counts.pop(b"<unk>", None)
    kept = [(-n, _as_bytes(word), word) for word, n in counts.items() if n > min_word_freq]
    index: WordIndex = {word: i for i, (_, _, word) in enumerate(sorted(kept, key=lambda k: k[:2]))}
    index["<unk>"] = len(index)
    return index


def train(
    word_idx: WordIndex,
    n: int,
    data_type: int = DataType.NGRAM,
    data_dir: str | Path | None = None,
) -> Callable[[], Iterator[Any]]:
    """Return a reader of the training text; `n` is the size of n-grams or the longest sentence."""
    return reader_of(_TRAIN, word_idx, n, data_type, data_dir)


def test(
    word_idx: WordIndex,
    n: int,
    data_type: int = DataType.NGRAM,
    data_dir: str | Path | None = None,
) -> Callable[[], Iterator[Any]]:
    """Return a reader of the validation text."""
    return reader_of(_VALID, word_idx, n, data_type, data_dir)


def reader_of(
    name: str, word_idx: WordIndex, n: int, data_type: int, data_dir: str | Path | None
) -> Callable[[], Iterator[Any]]:
    """Return a reader of one of the files, such as ptb.train.txt."""
    if data_type not in (DataType.NGRAM, DataType.SEQ):
        raise ValueError(f"data_type must be DataType.NGRAM or DataType.SEQ, not {data_type!r}.")
    if data_type == DataType.NGRAM and n < 1:
        raise ValueError(f"n-grams need n of at least 1, not {n}.")
    find_file("imikolov", *_ARCHIVES, data_dir=data_dir)
    unknown = word_idx["<unk>"]
    begin, end = word_idx.get("<s>", unknown), word_idx.get("<e>", unknown)

    def reader() -> Iterator[Any]:
        for line in _lines(name, data_dir):
            words = [word_idx.get(word, unknown) for word in line]
            if data_type == DataType.NGRAM:
                marked = [begin, *words, end]
                yield from zip(*(marked[i:] for i in range(n)), strict=False)
            elif n <= 0 or len(words) < n:
                yield [begin, *words], [*words, end]

    return reader


def _lines(name: str, data_dir: str | Path | None) -> Iterator[list[bytes]]:
    path = find_file("imikolov", *_ARCHIVES, data_dir=data_dir)
    for _, stream in files_in_tar(path, lambda member: member.endswith(f"data/{name}")):
        yield from map(bytes.split, stream)
        return
    raise ValueError(f"{path} holds no file simple-examples/data/{name}.")


def _as_bytes(word: bytes | str) -> bytes:
    return word.encode() if isinstance(word, str) else word
