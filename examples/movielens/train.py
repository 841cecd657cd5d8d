"""A two-tower model of which films users like: train, save, export; with servers or alone.

    python examples/movielens/train.py --data ml-100k
    fleetrun --server_num 2 --worker_num 2 examples/movielens/train.py --data ml-100k

The same script runs in both ways, and writes the same folders: `saved` with the tables, and
`models/<number>` for `fleetx serve`, a new one each time. Without --data, ratings are synthetic.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from ratings import auc, hit_rate, invent_ratings, read_ratings, split
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits

import fleetx
from fleetx import fleet


class Tower(nn.Module):
    """The vector of a user or of a film: its row, and a small network."""

    def __init__(self, name: str, dim: int) -> None:
        super().__init__()
        self.rows = fleetx.SparseEmbedding(name, dim)
        self.network = nn.Sequential(nn.Linear(dim, dim), nn.ReLU(), nn.Linear(dim, dim))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Return a vector per id."""
        rows: torch.Tensor = self.rows(ids)
        return rows + self.network(rows)


class TwoTowers(nn.Module):
    """The probability that a user likes a film."""

    def __init__(self, dim: int = 16) -> None:
        super().__init__()
        self.users, self.films = Tower("user", dim), Tower("film", dim)
        self.bias = nn.Parameter(torch.zeros(()))

    def forward(self, user: torch.Tensor, film: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return the probability, and its logit."""
        raw = (self.users(user) * self.films(film)).sum(-1) + self.bias
        return {"prob": raw.sigmoid(), "raw": raw}


def train(args: argparse.Namespace) -> None:
    """Train as one of the workers, or alone; worker 0 evaluates, saves and exports."""
    torch.manual_seed(0)
    ratings = read_ratings(args.data) if args.data else invent_ratings()
    data, kept_back = split(ratings)
    model = TwoTowers()
    if args.with_servers:
        fleet.init_worker()
    model = fleet.distributed_model(model)
    optimizer = fleet.distributed_optimizer(torch.optim.Adam(model.parameters(), lr=args.lr))
    for epoch in range(args.epochs):
        order = torch.randperm(len(data[0]), generator=torch.Generator().manual_seed(epoch))
        for batch in order.split(args.batch_size):
            own = batch[fleet.worker_index() :: fleet.worker_num()]  # an equal part of each batch
            user, film, liked = (part[own] for part in data)
            optimizer.zero_grad()
            loss = binary_cross_entropy_with_logits(model(user, film)["raw"], liked)
            loss.backward()
            optimizer.step()
        fleet.print(f"epoch {epoch}: loss {loss.item():.4f}")
    if fleet.is_first_worker():
        with torch.no_grad():
            scores = model(*kept_back[:2])["raw"]
            films = data[1].unique()
            hits = hit_rate(lambda user, film: model(user, film)["raw"], kept_back, films)
        print(f"auc {auc(scores, kept_back[2]):.4f}, hit rate {hits:.3f}")
        fleet.save_persistables(None, str(args.output / "saved"))
        example = [part[:2] for part in data[:2]]
        where = args.output / "models" / str(next_number(args.output / "models"))
        fleetx.save_recommender(model.module, where, example, tables=args.output / "saved")
        print(f"exported to {where}: fleetx serve {args.output / 'models'} --watch")
    if args.with_servers:
        fleet.stop_worker()


def next_number(models: Path) -> int:
    """Return the number after those of the models that have been exported."""
    names = (each.name for each in models.glob("[0-9]*"))
    return 1 + max((int(name) for name in names if name.isdigit()), default=0)


def main() -> None:
    """Run as the server or worker that the launcher started; without a launcher, train alone."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--data", type=Path, help="a folder of MovieLens; synthetic ratings by default"
    )
    parser.add_argument("--output", type=Path, default=Path("output"))
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch_size", type=int, default=250, help="of all workers together")
    parser.add_argument("--lr", type=float, default=0.01)
    args = parser.parse_args()
    strategy = fleet.DistributedStrategy()
    strategy.a_sync = False  # synchronous training
    fleet.init(strategy=strategy)
    args.with_servers = fleet.server_num() > 0
    if fleet.is_server():
        fleet.init_server()
        fleet.run_server()
    else:
        train(args)


if __name__ == "__main__":
    main()
