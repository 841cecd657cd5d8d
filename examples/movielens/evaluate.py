"""Evaluate the exported model: in this process, or over HTTP where `fleetx serve` runs.

python examples/movielens/evaluate.py output/models/1 --data ml-100k --samples samples.npz
python examples/movielens/evaluate.py http://127.0.0.1:8000 --data ml-100k
"""

from __future__ import annotations

import argparse
import urllib.request
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from ratings import auc, hit_rate, invent_ratings, read_ratings, split
from safetensors.numpy import load, save

from fleetx.serving.model import load_model

RAW = "application/vnd.safetensors"
Score = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def over_http(address: str, batch: int = 32) -> Score:
    """Return a function that requests scores from a server."""

    def ask(user: torch.Tensor, film: torch.Tensor) -> torch.Tensor:
        found = []
        for users, films in zip(user.split(batch), film.split(batch), strict=True):
            inputs = {"user": users.numpy().copy(), "film": films.numpy().copy()}
            request = urllib.request.Request(
                f"{address}/v1/predict", save(inputs), {"Content-Type": RAW}
            )
            with urllib.request.urlopen(request) as answer:
                found.append(load(answer.read())["raw"])
        return torch.from_numpy(np.concatenate(found))

    return ask


def in_this_process(folder: str) -> Score:
    """Return a function that runs the exported model."""
    model = load_model(folder)

    def score(user: torch.Tensor, film: torch.Tensor) -> torch.Tensor:
        inputs = {"user": user.numpy().copy(), "film": film.numpy().copy()}
        return torch.from_numpy(model.run(inputs)["raw"])

    return score


def main() -> None:
    """Print AUC and hit rate on the held-out ratings."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("model", help="the folder of the exported model, or a server's address")
    parser.add_argument(
        "--data", type=Path, help="a folder of MovieLens; synthetic ratings by default"
    )
    parser.add_argument("--samples", type=Path, help="where to write inputs for fleetx evaluate")
    args = parser.parse_args()
    data, kept_back = split(read_ratings(args.data) if args.data else invent_ratings())
    if args.samples is not None:
        user, film = (part[:1000].numpy() for part in kept_back[:2])
        np.savez(args.samples, user=user, film=film)
    score = (over_http if "://" in args.model else in_this_process)(args.model)
    hits = hit_rate(score, kept_back, data[1].unique())
    print(f"auc {auc(score(*kept_back[:2]), kept_back[2]):.4f}, hit rate {hits:.3f}")


if __name__ == "__main__":
    main()
