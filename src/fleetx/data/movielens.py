# ruff: noqa: PT028 - test() reads the test set; it is not a test.
"""MovieLens 1M: ratings as [user, gender, age group, job, film, categories, title words, [rating]].

Ratings of 1 to 5 stars become -3 to 5. One rating in ten, drawn with a fixed seed, is for testing.
"""

from __future__ import annotations

import functools
import re
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fleetx.data.local_files import find_file
from fleetx.exports import export_defined

age_table = [1, 18, 25, 35, 45, 50, 56]
_ARCHIVES = ("movielens%2Fml-1m.zip", "ml-1m.zip")
_TITLE = re.compile(r"^(.*)\((\d+)\)$")


@dataclass(frozen=True)
class UserInfo:
    """A user: number, sex, age (an index of `age_table`), and number of the job."""

    index: int
    is_male: bool
    age: int
    job_id: int

    def value(self) -> list[int]:
        """Return the user's part of a sample."""
        return [self.index, 0 if self.is_male else 1, self.age, self.job_id]


@dataclass(frozen=True)
class MovieInfo:
    """A film: number, categories, and title without the year."""

    index: int
    categories: tuple[str, ...]
    title: str


@dataclass(frozen=True)
class _Catalogue:
    users: dict[int, UserInfo]
    movies: dict[int, MovieInfo]
    categories: dict[str, int]
    title_words: dict[str, int]


def train(
    rand_seed: int = 0, test_ratio: float = 0.1, data_dir: str | Path | None = None
) -> Callable[[], Iterator[list[Any]]]:
    """Return a reader of the training ratings."""
    return _reader(rand_seed, test_ratio, False, data_dir)


def test(
    rand_seed: int = 0, test_ratio: float = 0.1, data_dir: str | Path | None = None
) -> Callable[[], Iterator[list[Any]]]:
    """Return a reader of the test ratings."""
    return _reader(rand_seed, test_ratio, True, data_dir)


def user_info(data_dir: str | Path | None = None) -> dict[int, UserInfo]:
    """Return all users by number."""
    return _catalogue(_archive(data_dir)).users


def movie_info(data_dir: str | Path | None = None) -> dict[int, MovieInfo]:
    """Return all films by number."""
    return _catalogue(_archive(data_dir)).movies


def movie_categories(data_dir: str | Path | None = None) -> dict[str, int]:
    """Return the numbers of the categories."""
    return _catalogue(_archive(data_dir)).categories


def get_movie_title_dict(data_dir: str | Path | None = None) -> dict[str, int]:
    """Return the numbers of the words in titles."""
    return _catalogue(_archive(data_dir)).title_words


def max_user_id(data_dir: str | Path | None = None) -> int:
    """Return the highest number of a user."""
    return max(user_info(data_dir))


def max_movie_id(data_dir: str | Path | None = None) -> int:
    """Return the highest number of a film."""
    return max(movie_info(data_dir))


def max_job_id(data_dir: str | Path | None = None) -> int:
    """Return the highest number of a job."""
    return max(user.job_id for user in user_info(data_dir).values())


def _reader(
    seed: int, test_ratio: float, is_test: bool, data_dir: str | Path | None
) -> Callable[[], Iterator[list[Any]]]:
    path = _archive(data_dir)

    def reader() -> Iterator[list[Any]]:
        catalogue = _catalogue(path)
        draw = np.random.RandomState(seed)
        for user, movie, stars, _ in _rows(path, "ratings.dat", 4):
            if (draw.random_sample() < test_ratio) != is_test:
                continue
            film = catalogue.movies[int(movie)]
            yield [
                *catalogue.users[int(user)].value(),
                film.index,
                [catalogue.categories[name] for name in film.categories],
                [catalogue.title_words[word.lower()] for word in film.title.split()],
                [float(stars) * 2 - 5.0],
            ]

    return reader


def _archive(data_dir: str | Path | None) -> Path:
    return find_file("movielens", *_ARCHIVES, data_dir=data_dir)


@functools.lru_cache(maxsize=2)
def _catalogue(path: Path) -> _Catalogue:
    movies = {}
    for number, title, categories in _rows(path, "movies.dat", 3):
        match = _TITLE.match(title)
        name = match.group(1) if match else title
        movies[int(number)] = MovieInfo(int(number), tuple(categories.split("|")), name)
    users = {
        int(number): UserInfo(int(number), sex == "M", age_table.index(int(age)), int(job))
        for number, sex, age, job, _ in _rows(path, "users.dat", 5)
    }
    # Sorted, so that the numbers are the same in every process.
    kinds = sorted({name for movie in movies.values() for name in movie.categories})
    words = sorted({word.lower() for movie in movies.values() for word in movie.title.split()})
    return _Catalogue(users, movies, _numbered(kinds), _numbered(words))


def _rows(path: Path, name: str, fields: int) -> Iterator[list[str]]:
    with zipfile.ZipFile(path) as archive, archive.open(f"ml-1m/{name}") as file:
        for number, line in enumerate(file, 1):
            row = line.decode("latin-1").strip().split("::")
            if len(row) != fields:
                raise ValueError(
                    f"{path}, ml-1m/{name}, line {number} has {len(row)} fields, not {fields}."
                )
            yield row


def _numbered(names: list[str]) -> dict[str, int]:
    return {name: number for number, name in enumerate(names)}


export_defined(globals(), "age_table")
