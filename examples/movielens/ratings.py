"""Ratings of films: from folders in MovieLens' layouts, or synthetic ones."""

from __future__ import annotations

import csv
from pathlib import Path

import torch

LIKED = 4.0
"""A rating of at least this many stars counts as liked."""


def read_ratings(folder: Path) -> torch.Tensor:
    """Return rows of (user, film, stars, time) from a folder.

    Supported are `u.data` (MovieLens 100k), `ratings.csv` (25M) and `*.inter` (RecBole's copies).
    """
    if (folder / "u.data").is_file():
        path, separator, skip = folder / "u.data", "\t", 0
    elif (folder / "ratings.csv").is_file():
        path, separator, skip = folder / "ratings.csv", ",", 1
    else:
        found = sorted(folder.glob("*.inter"))
        if not found:
            raise FileNotFoundError(
                f"{folder} has none of u.data, ratings.csv and *.inter: pass a folder of MovieLens."
            )
        path, separator, skip = found[0], "\t", 1
    with path.open(newline="") as stream:
        lines = csv.reader(stream, delimiter=separator)
        for _ in range(skip):
            next(lines)
        rows = [[float(cell) for cell in line[:4]] for line in lines]
    return torch.tensor(rows, dtype=torch.float64)


def invent_ratings(users: int = 300, films: int = 200, count: int = 20_000) -> torch.Tensor:
    """Return synthetic ratings: users like films whose random factors are similar to theirs."""
    draw = torch.Generator().manual_seed(1)
    taste = torch.randn(users, 4, generator=draw), torch.randn(films, 4, generator=draw)
    pairs = torch.randperm(users * films, generator=draw)[:count]
    user, film = pairs // films, pairs % films
    near = (taste[0][user] * taste[1][film]).sum(1) + 0.5 * torch.randn(count, generator=draw)
    stars = (3.0 + near).clamp(1, 5).round()
    return torch.stack([user + 1, film + 1, stars, torch.arange(count)], 1).double()


def split(ratings: torch.Tensor) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Return (users, films, liked) to train with, and those of the last tenth in time."""
    ratings = ratings[ratings[:, 3].argsort(stable=True)]
    users, films = ratings[:, 0].long(), ratings[:, 1].long()
    liked = (ratings[:, 2] >= LIKED).float()
    last = len(ratings) - len(ratings) // 10
    parts = users, films, liked
    return [each[:last] for each in parts], [each[last:] for each in parts]


def auc(scores: torch.Tensor, liked: torch.Tensor) -> float:
    """Return the AUC: how often a liked film has a higher score than another one."""
    ranks = torch.empty(len(scores))
    ranks[scores.argsort()] = torch.arange(1, len(scores) + 1).float()
    positive = liked.bool()
    ones, zeros = int(positive.sum()), int((~positive).sum())
    return (float(ranks[positive].sum()) - ones * (ones + 1) / 2) / (ones * zeros)


def hit_rate(score: object, kept_back: list[torch.Tensor], films: torch.Tensor) -> float:
    """Return the hit rate: how often a liked film ranks among the first 10 of 100 films.

    `score` is a function from users and films to scores.
    """
    draw = torch.Generator().manual_seed(2)
    users, liked_films = (part[kept_back[2] == 1][:200] for part in kept_back[:2])
    hits = 0
    for user, film in zip(users, liked_films, strict=True):
        others = films[torch.randint(len(films), (99,), generator=draw)]
        candidates = torch.cat([film.reshape(1), others[others != film]])
        scores = score(user.expand(len(candidates)), candidates)  # type: ignore[operator]
        hits += int((scores > scores[0]).sum() < 10)
    return hits / len(users)
