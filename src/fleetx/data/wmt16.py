# ruff: noqa: PT028 - test() reads the test set; it is not a test.
"""Multi30K of WMT'16, English and German: (source, target, target shifted by one word)."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from fleetx.data.local_files import file_in_tar, find_file

Sample = tuple[list[int], list[int], list[int]]
_COLUMNS = {"en": 0, "de": 1}
_WORDS = {"en": 11250, "de": 19220}
_MARKS = ("<s>", "<e>", "<unk>")


def train(
    src_dict_size: int,
    trg_dict_size: int,
    src_lang: str = "en",
    data_dir: str | Path | None = None,
) -> Callable[[], Iterator[Sample]]:
    """Return a reader of the training pairs, with dictionaries of at most these sizes."""
    return _reader("train", src_dict_size, trg_dict_size, src_lang, data_dir)


def test(
    src_dict_size: int,
    trg_dict_size: int,
    src_lang: str = "en",
    data_dir: str | Path | None = None,
) -> Callable[[], Iterator[Sample]]:
    """Return a reader of the test pairs."""
    return _reader("test", src_dict_size, trg_dict_size, src_lang, data_dir)


def validation(
    src_dict_size: int,
    trg_dict_size: int,
    src_lang: str = "en",
    data_dir: str | Path | None = None,
) -> Callable[[], Iterator[Sample]]:
    """Return a reader of the validation pairs."""
    return _reader("val", src_dict_size, trg_dict_size, src_lang, data_dir)


def get_dict(
    lang: str, dict_size: int, reverse: bool = False, data_dir: str | Path | None = None
) -> dict[Any, Any]:
    """Return the indices of a language's words, or with `reverse` the words by index."""
    words = _dictionary(_archive(data_dir), lang, dict_size)
    return {index: word for word, index in words.items()} if reverse else words


def fetch(data_dir: str | Path | None = None) -> str:
    """Return the path of the archive; nothing is downloaded."""
    return str(_archive(data_dir))


def _reader(
    part: str, src_size: int, trg_size: int, src_lang: str, data_dir: str | Path | None
) -> Callable[[], Iterator[Sample]]:
    if src_lang not in _COLUMNS:
        raise ValueError(f"src_lang must be 'en' or 'de', not {src_lang!r}.")
    path = _archive(data_dir)
    trg_lang = "de" if src_lang == "en" else "en"

    def reader() -> Iterator[Sample]:
        source = _dictionary(path, src_lang, src_size)
        target = _dictionary(path, trg_lang, trg_size)
        begin, end, unknown = (source[mark] for mark in _MARKS)
        for sides in _pairs(path, part):
            inputs = [source.get(w, unknown) for w in sides[_COLUMNS[src_lang]].split()]
            outputs = [target.get(w, unknown) for w in sides[_COLUMNS[trg_lang]].split()]
            yield [begin, *inputs, end], [begin, *outputs], [*outputs, end]

    return reader


def _archive(data_dir: str | Path | None) -> Path:
    return find_file("wmt16", "wmt16.tar.gz", data_dir=data_dir)


def _pairs(path: Path, part: str) -> Iterator[list[str]]:
    for line in file_in_tar(path, f"wmt16/{part}").decode().split("\n"):
        sides = line.strip().split("\t")
        if len(sides) == 2:
            yield sides


def _dictionary(path: Path, lang: str, size: int) -> dict[str, int]:
    """Number the marks and the most frequent words of the training text."""
    if lang not in _COLUMNS:
        raise ValueError(f"lang must be 'en' or 'de', not {lang!r}.")
    if size <= len(_MARKS):
        raise ValueError(f"A dictionary needs more than the {len(_MARKS)} marks, not {size} words.")
    kept = _by_frequency(path, lang, path.stat().st_mtime_ns)
    words = [*_MARKS, *kept[: min(size, _WORDS[lang]) - len(_MARKS)]]
    return {word: index for index, word in enumerate(words)}


@functools.lru_cache(maxsize=4)
def _by_frequency(path: Path, lang: str, changed: int) -> list[str]:
    del changed  # a part of the key: another archive at the same path is read again
    column = _COLUMNS[lang]
    counts = Counter(word for sides in _pairs(path, "train") for word in sides[column].split())
    return [word for word, _ in counts.most_common()]
