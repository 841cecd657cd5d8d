# ruff: noqa: PT028 - test() reads the test set; it is not a test.
"""CoNLL-2005: sentences with the roles of their verbs, for semantic role labelling.

A sample has nine lists of the sentence's length: words, the five words around the verb (each
repeated), the verb, a mark for those five words, and the labels.
"""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterator
from pathlib import Path

from fleetx.data.local_files import file_in_tar, find_file

Sample = tuple[list[int], ...]
Sentence = tuple[list[str], str, list[str]]
_NAME = "conll05st"
_ARCHIVE = "conll05st-tests.tar.gz"
_FOLDER = "conll05st-release/test.wsj"
_UNKNOWN = 0


def get_dict(
    data_dir: str | Path | None = None,
) -> tuple[dict[str, int], dict[str, int], dict[str, int]]:
    """Return the indices of words, verbs and labels."""
    return dictionaries(data_dir, data_dir, data_dir)


def dictionaries(
    words: str | Path | None, verbs: str | Path | None, labels: str | Path | None
) -> tuple[dict[str, int], dict[str, int], dict[str, int]]:
    """Return the indices of words, verbs and labels in files, or in the folders that hold them."""
    return (
        _numbered(_find("wordDict.txt", words)),
        _numbered(_find("verbDict.txt", verbs)),
        _labels(_find("targetDict.txt", labels)),
    )


def get_embedding(data_dir: str | Path | None = None) -> str:
    """Return the path of the word vectors."""
    return str(_find("emb", data_dir))


def test(data_dir: str | Path | None = None) -> Callable[[], Iterator[Sample]]:
    """Return a reader of the test set, which scripts train on as well: the rest is not free."""
    indices = get_dict(data_dir)
    path = find_file(_NAME, _ARCHIVE, data_dir=data_dir)
    return lambda: samples(path, *indices)


def samples(
    data_file: str | Path | None,
    words: dict[str, int],
    verbs: dict[str, int],
    labels: dict[str, int],
) -> Iterator[Sample]:
    """Yield the samples of an archive."""
    for sentence, verb, roles in sentences(find_file(_NAME, _ARCHIVE, data_dir=data_file)):
        yield _sample(sentence, verb, roles, words, verbs, labels)


def sentences(path: Path) -> Iterator[Sentence]:
    """Yield (words, verb, labels) for every verb of every sentence in an archive."""
    words = gzip.decompress(file_in_tar(path, f"{_FOLDER}/words/test.wsj.words.gz"))
    props = gzip.decompress(file_in_tar(path, f"{_FOLDER}/props/test.wsj.props.gz"))
    sentence: list[str] = []
    rows: list[list[str]] = []
    pairs = zip(words.decode().splitlines(), props.decode().splitlines(), strict=False)
    for word, prop in pairs:
        columns = prop.split()
        if columns:
            sentence.append(word.strip())
            rows.append(columns)
            continue
        if len({len(row) for row in rows}) > 1:
            raise ValueError(f"{path}: the rows of the sentence {sentence} differ in length.")
        first, *others = zip(*rows, strict=True) if rows else ((),)
        verbs = [verb for verb in first if verb != "-"]
        for verb, column in zip(verbs, others, strict=False):
            yield sentence, verb, _roles(column, path)
        sentence, rows = [], []


def _roles(column: tuple[str, ...], path: Path) -> list[str]:
    """Return the labels B-..., I-... and O of a column such as (A0* * *) (V*) *."""
    roles, role, inside = [], "O", False
    for cell in column:
        if cell.startswith("(") and "*" in cell:
            role, inside = cell[1 : cell.index("*")], ")" not in cell
            roles.append(f"B-{role}")
        elif cell == "*":
            roles.append(f"I-{role}" if inside else "O")
        elif cell == "*)":
            roles.append(f"I-{role}")
            inside = False
        else:
            raise ValueError(f"{path}: the label {cell!r} is not one of '(A0*', '*', '*)', '(V*)'.")
    return roles


def _sample(
    sentence: list[str],
    verb: str,
    roles: list[str],
    words: dict[str, int],
    verbs: dict[str, int],
    labels: dict[str, int],
) -> Sample:
    unknown = {verb} - verbs.keys() | set(roles) - labels.keys()
    if unknown or "B-V" not in roles:
        raise ValueError(
            f"The sentence {' '.join(sentence)!r} has no label B-V, or its verb and labels "
            f"{sorted(unknown)} are not in verbDict.txt and targetDict.txt."
        )
    at, size = roles.index("B-V"), len(sentence)
    padded = ["bos", "bos", *sentence, "eos", "eos"]
    around = [[words.get(word, _UNKNOWN)] * size for word in padded[at : at + 5]]
    mark = [int(abs(i - at) <= 2) for i in range(size)]
    indices = [words.get(word, _UNKNOWN) for word in sentence]
    return (indices, *around, [verbs[verb]] * size, mark, [labels[role] for role in roles])


def _find(name: str, data_dir: str | Path | None) -> Path:
    return find_file(_NAME, f"{_NAME}%2F{name}", name, data_dir=data_dir)


def _numbered(path: Path) -> dict[str, int]:
    lines = path.read_text(encoding="utf-8").splitlines()
    return {line.strip(): index for index, line in enumerate(lines)}


def _labels(path: Path) -> dict[str, int]:
    """Return the indices of B-x and I-x of every tag in the order of the file, then that of O."""
    lines = [line.strip() for line in path.read_text(encoding="utf-8").splitlines()]
    tags = dict.fromkeys(line[2:] for line in lines if line.startswith(("B-", "I-")))
    names = [f"{prefix}-{tag}" for tag in tags for prefix in "BI"]
    return {name: index for index, name in enumerate([*names, "O"])}
