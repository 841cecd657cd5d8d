"""MQ2007 of LETOR 4.0: documents with their relevance to queries, for learning to rank.

A line is `2 qid:10 1:0.03 ... 46:0.1 #comment`. The archive is a RAR file; unpack it into
`~/.cache/paddle/dataset/MQ2007`.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from fleetx.data.local_files import find_file
from fleetx.exports import export_defined

Array = np.ndarray[Any, Any]
_FEATURES = 46
_FORMATS = ("plain_txt", "pointwise", "pairwise", "listwise")


class Query:
    """A document: the query, its relevance to it, features, and the comment."""

    def __init__(
        self,
        query_id: int = -1,
        relevance_score: int = -1,
        feature_vector: list[float] | None = None,
        description: str = "",
    ) -> None:
        self.query_id = query_id
        self.relevance_score = relevance_score
        self.feature_vector = [] if feature_vector is None else feature_vector
        self.description = description

    def __str__(self) -> str:
        features = " ".join(map(str, self.feature_vector))
        return f"{self.relevance_score} {self.query_id} {features}"


class QueryList:
    """The documents of one query."""

    def __init__(self, querylist: list[Query] | None = None) -> None:
        self.querylist = [] if querylist is None else querylist
        ids = {query.query_id for query in self.querylist}
        if len(ids) > 1:
            raise ValueError(f"A QueryList takes documents of one query, not of {sorted(ids)}.")
        self.query_id = ids.pop() if ids else -1

    def __iter__(self) -> Iterator[Query]:
        return iter(self.querylist)

    def __len__(self) -> int:
        return len(self.querylist)

    def __getitem__(self, i: int) -> Query:
        return self.querylist[i]


def gen_plain_txt(querylist: QueryList | list[Query]) -> Iterator[tuple[int, int, Array]]:
    """Yield (query, relevance, features) of every document, the most relevant first."""
    for query in _ranked(querylist):
        yield query.query_id, query.relevance_score, np.array(query.feature_vector)


def gen_point(querylist: QueryList | list[Query]) -> Iterator[tuple[int, Array]]:
    """Yield (relevance, features) of every document, the most relevant first."""
    for query in _ranked(querylist):
        yield query.relevance_score, np.array(query.feature_vector)


def gen_pair(
    querylist: QueryList | list[Query], partial_order: str = "full"
) -> Iterator[tuple[Array, Array, Array]]:
    """Yield ([1], better, worse) for all pairs of documents of different relevance."""
    ranked = _ranked(querylist)
    for position, better in enumerate(ranked):
        for worse in ranked[position + 1 :]:
            if better.relevance_score > worse.relevance_score:
                features = np.array(better.feature_vector), np.array(worse.feature_vector)
                yield np.array([1]), *features


def gen_list(querylist: QueryList | list[Query]) -> Iterator[tuple[Array, Array]]:
    """Yield ([[relevance], ...], [features, ...]) of all documents, the most relevant first."""
    ranked = _ranked(querylist)
    scores = [[query.relevance_score] for query in ranked]
    yield np.array(scores), np.array([query.feature_vector for query in ranked])


def query_filter(querylists: Iterable[QueryList]) -> list[QueryList]:
    """Return the queries that have a relevant document."""
    return [each for each in querylists if sum(query.relevance_score for query in each)]


def load_from_text(
    filepath: str,
    shuffle: bool = False,
    fill_missing: int = -1,
    data_dir: str | Path | None = None,
) -> list[QueryList]:
    """Return the queries of a file such as `MQ2007/MQ2007/Fold1/train.txt`.

    `shuffle` and `fill_missing` have no effect, as in Paddle.
    """
    path = find_file("MQ2007", filepath, data_dir=data_dir)
    with path.open(encoding="utf-8") as stream:
        queries = [_parse(line, f"{path}:{n}") for n, line in enumerate(stream, 1) if line.strip()]
    return [QueryList(list(group)) for _, group in groupby(queries, key=lambda q: q.query_id)]


def fetch(data_dir: str | Path | None = None) -> str:
    """Return the path of the archive; nothing is downloaded."""
    names = "7b6dbbe2-842c-11e4-a536-bcaec51b9163_MQ2007.rar", "MQ2007.rar"
    return str(find_file("MQ2007", *names, data_dir=data_dir))


def _read(
    filepath: str,
    format: str = "pairwise",
    shuffle: bool = False,
    fill_missing: int = -1,
    data_dir: str | Path | None = None,
) -> Iterator[Any]:
    """Yield samples: all pairs or the whole list of a query; of points only the best one."""
    if format not in _FORMATS:
        raise ValueError(f"format must be one of {', '.join(_FORMATS)}, not {format!r}.")
    for querylist in query_filter(load_from_text(filepath, shuffle, fill_missing, data_dir)):
        if format == "plain_txt":
            yield next(gen_plain_txt(querylist))
        elif format == "pointwise":
            yield next(gen_point(querylist))
        elif format == "listwise":
            yield from gen_list(querylist)
        else:
            yield from gen_pair(querylist)


train = functools.partial(_read, filepath="MQ2007/MQ2007/Fold1/train.txt")
test = functools.partial(_read, filepath="MQ2007/MQ2007/Fold1/test.txt")


def _ranked(querylist: QueryList | list[Query]) -> list[Query]:
    checked = querylist if isinstance(querylist, QueryList) else QueryList(querylist)
    checked.querylist.sort(key=lambda query: query.relevance_score, reverse=True)
    return checked.querylist


def _parse(line: str, where: str) -> Query:
    text, _, comment = line.partition("#")
    score, *fields = text.split()
    try:
        (_, query_id), *features = (field.split(":") for field in fields)
        values = [float(value) for _, value in features]
        query = Query(int(query_id), int(score), values, comment.strip())
    except ValueError as error:
        raise ValueError(
            f"{where}: a line is '0 qid:10 1:0.5 ... 46:0.1', not {line!r}."
        ) from error
    if len(query.feature_vector) != _FEATURES:
        raise ValueError(f"{where}: {len(values)} features, but a line has {_FEATURES}.")
    return query


export_defined(globals(), "test", "train")
