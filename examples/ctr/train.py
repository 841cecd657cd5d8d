"""DeepFM on parameter servers: predict which films users like, from MovieLens's ratings.

    fleetrun --server_num 1 --worker_num 2 examples/ctr/train.py --ratings u.data

Lines are "user item rating time", separated by tabs, as in `u.data` of MovieLens 100k (lines that
do not begin with a number are skipped). Without --ratings, synthetic ratings are used. Rows of
users and films are on the servers and are created when they are first trained; started with plain
python, the script trains alone.
"""

import argparse

import numpy as np
import torch
from torch.nn.functional import binary_cross_entropy_with_logits

from fleetx import fleet
from fleetx.applications import CriteoSizes, DeepFMModule

_ITEMS = 1 << 32  # offset of the ids of films


def read_ratings(path: str) -> np.ndarray:
    """Return lines [user, item, stars, time] of a file."""
    with open(path) as lines:
        rows = [line.split("\t")[:4] for line in lines if line[:1].isdigit()]
    return np.array(rows, dtype=np.float64)


def invent_ratings(count: int = 20000, users: int = 300, items: int = 200) -> np.ndarray:
    """Return synthetic ratings, from random factors of users and films."""
    random = np.random.RandomState(0)
    tastes, qualities = random.randn(users, 3), random.randn(items, 3)
    who, what = random.randint(0, users, count), random.randint(0, items, count)
    liking = (tastes[who] * qualities[what]).sum(1) + 0.5 * random.randn(count)
    return np.stack([who, what, 3.5 + liking, np.arange(count)], axis=1)


def samples(ratings: np.ndarray) -> list[torch.Tensor]:
    """Return time as a number from 0 to 1, ids of user and film, and whether it was liked."""
    mixed = ratings[np.random.RandomState(0).permutation(len(ratings))]
    time = mixed[:, 3:]
    dense = (time - time.min()) / max(np.ptp(time), 1.0)
    ids = mixed[:, :2].astype(np.int64) + [0, _ITEMS]
    return [
        torch.from_numpy(dense.astype(np.float32)),
        torch.from_numpy(ids),
        torch.from_numpy((mixed[:, 2] >= 4).astype(np.float32)),
    ]


def auc(scores: torch.Tensor, labels: torch.Tensor) -> float:
    """Return the AUC: the fraction of pairs of a liked and another film in the right order."""
    ranks = torch.empty(len(scores), dtype=torch.float64)
    ranks[scores.argsort()] = torch.arange(1, len(scores) + 1, dtype=torch.float64)
    liked = labels.sum().item()
    above = ranks[labels > 0].sum().item() - liked * (liked + 1) / 2
    return above / (liked * (len(labels) - liked))


def train(data: list[torch.Tensor], epochs: int, batch_size: int, rate: float) -> None:
    """Train as one of the workers; worker 0 prints the AUC on held-out ratings."""
    torch.manual_seed(0)
    kept_back = [part[: len(part) // 10] for part in data]
    own = [part[len(part) // 10 :][fleet.worker_index() :: fleet.worker_num()] for part in data]
    model = DeepFMModule(CriteoSizes(dense=1, slots=2, row=8, hidden=(32, 16)), on_servers=True)
    fleet.init_worker()
    model = fleet.distributed_model(model)
    optimizer = fleet.distributed_optimizer(torch.optim.Adam(model.parameters(), lr=rate))
    # Synchronous workers have equally many batches.
    count = len(data[0]) // 10 * 9 // fleet.worker_num() // batch_size
    for epoch in range(epochs):
        for i in range(count):
            dense, ids, liked = (part[i * batch_size : (i + 1) * batch_size] for part in own)
            optimizer.zero_grad()
            loss = binary_cross_entropy_with_logits(model(dense, ids), liked)
            loss.backward()
            optimizer.step()
        if fleet.is_first_worker():
            with torch.no_grad():
                found = auc(model(*kept_back[:2]), kept_back[2])
            print(f"Epoch {epoch}, loss = {loss.item():.4f}, auc = {found:.4f}")
    fleet.stop_worker()


def main() -> None:
    """Run as the server or worker that the launcher started."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--ratings", help="a file of ratings; synthetic ones by default")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch_size", type=int, default=500)
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument(
        "--async", action="store_true", dest="a_sync", help="do not wait for others"
    )
    args = parser.parse_args()
    strategy = fleet.DistributedStrategy()
    strategy.a_sync = args.a_sync
    fleet.init(strategy=strategy)
    if fleet.is_server():
        fleet.init_server()
        fleet.run_server()
        return
    data = samples(read_ratings(args.ratings) if args.ratings else invent_ratings())
    train(data, args.epochs, args.batch_size, args.lr)


if __name__ == "__main__":
    main()
