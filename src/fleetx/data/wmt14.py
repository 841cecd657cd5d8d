# ruff: noqa: PT028 - test() reads the test set; it is not a test.
"""WMT'14, English to French: (source, target, target shifted by one word) as word indices."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from fleetx.data.local_files import files_in_tar, find_file

Sample = tuple[list[int], list[int], list[int]]
_ARCHIVES = ("wmt14.tgz", "wmt%2Fwmt14.tgz")
_BEGIN, _END = "<s>", "<e>"
_UNKNOWN = 2
_LONGEST = 80


def train(dict_size: int, data_dir: str | Path | None = None) -> Callable[[], Iterator[Sample]]:
    """Return a reader of the training pairs, with dictionaries of at most `dict_size` words."""
    return _reader("train/train", dict_size, data_dir)


def test(dict_size: int, data_dir: str | Path | None = None) -> Callable[[], Iterator[Sample]]:
    """Return a reader of the test pairs."""
    return _reader("test/test", dict_size, data_dir)


def gen(dict_size: int, data_dir: str | Path | None = None) -> Callable[[], Iterator[Sample]]:
    """Return a reader of the pairs for generation."""
    return _reader("gen/gen", dict_size, data_dir)


def get_dict(
    dict_size: int, reverse: bool = True, data_dir: str | Path | None = None
) -> tuple[dict[Any, Any], dict[Any, Any]]:
    """Return the dictionaries of both languages: words by index, or with `reverse=False` back."""
    both = _dictionaries(find_file("wmt14", *_ARCHIVES, data_dir=data_dir), dict_size)
    if not reverse:
        return both
    source, target = ({index: word for word, index in words.items()} for words in both)
    return source, target


def _reader(
    part: str, dict_size: int, data_dir: str | Path | None
) -> Callable[[], Iterator[Sample]]:
    path = find_file("wmt14", *_ARCHIVES, data_dir=data_dir)

    def reader() -> Iterator[Sample]:
        source, target = _dictionaries(path, dict_size)
        for _, stream in files_in_tar(path, lambda name: name.endswith(part)):
            for line in stream:
                sides = line.decode().strip().split("\t")
                if len(sides) != 2:
                    continue
                words = [_BEGIN, *sides[0].split(), _END]
                inputs = [source.get(word, _UNKNOWN) for word in words]
                outputs = [target.get(word, _UNKNOWN) for word in sides[1].split()]
                if max(len(inputs), len(outputs)) <= _LONGEST:
                    yield inputs, [target[_BEGIN], *outputs], [*outputs, target[_END]]

    return reader


def _dictionaries(path: Path, dict_size: int) -> tuple[dict[str, int], dict[str, int]]:
    found = {}
    for name, stream in files_in_tar(path, lambda name: name.endswith(("src.dict", "trg.dict"))):
        words = (line.decode().strip() for line in islice(stream, dict_size))
        found[name[-8:]] = {word: index for index, word in enumerate(words)}
    if len(found) != 2:
        raise ValueError(f"{path} holds no pair of files src.dict and trg.dict.")
    return found["src.dict"], found["trg.dict"]
