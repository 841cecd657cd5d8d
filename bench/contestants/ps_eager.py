"""The CTR model in PyTorch: with parameter servers, or alone with a local sparse embedding.

ps_eager.py sync|async|geo|ahead|waiting|geo_waiting|local [settled]

"ahead" is asynchronous and prefetches the rows of the next batch during a step; "waiting" is
asynchronous too, but every step waits until its push has been applied and its rows have arrived.
"geo_waiting" waits for every exchange of deltas at once, while "geo" trains during it. With
"settled", a window ends when the servers have applied everything that was sent in it.
"""

import sys

import torch
from ctr_data import BATCH, DIM, GEO_STEPS, HIDDEN, IDS, RATE, SLOTS, batches
from loop import serve
from torch import nn

torch.set_num_threads(1)
mode, is_settled = sys.argv[1], "settled" in sys.argv


class LocalRows(nn.Module):
    """All rows in this process; a bag holds the one id of a slot."""

    def __init__(self):
        super().__init__()
        self.bag = nn.EmbeddingBag(IDS, DIM, mode="sum", sparse=True)
        self.offsets = torch.arange(BATCH * SLOTS)

    def forward(self, ids):
        """Return the rows of ids."""
        return self.bag(ids.reshape(-1), self.offsets).view(BATCH, -1)


class Model(nn.Module):
    """Embeddings of all slots, then a perceptron."""

    def __init__(self, rows):
        super().__init__()
        sizes = (SLOTS * DIM, *HIDDEN)
        layers = [
            part
            for before, after in zip(sizes[:-1], sizes[1:], strict=True)
            for part in (nn.Linear(before, after), nn.ReLU())
        ]
        self.rows, self.rest = rows, nn.Sequential(*layers, nn.Linear(sizes[-1], 2))

    def forward(self, ids):
        """Return logits."""
        return self.rest(self.rows(ids).view(BATCH, -1))


if mode == "local":
    worker, exchange = 0, None
    model = Model(LocalRows())
    optimizer = torch.optim.SGD(model.parameters(), RATE)
else:
    from fleetx import SparseEmbedding, fleet

    strategy = fleet.DistributedStrategy()
    strategy.a_sync = mode != "sync"
    if mode.startswith("geo"):
        strategy.a_sync_configs = {"k_steps": GEO_STEPS}
    if mode == "waiting":
        strategy.a_sync_configs = {"max_staleness": 0}
    fleet.init(strategy=strategy)
    if fleet.is_server():
        fleet.init_server()
        fleet.run_server()
        sys.exit()
    worker = fleet.worker_index()
    rows = SparseEmbedding("table", DIM)
    model = Model(rows)
    optimizer = torch.optim.SGD(model.parameters(), RATE)
    model = fleet.distributed_model(model)
    optimizer = fleet.distributed_optimizer(optimizer)
    fleet.init_worker()
    exchange = rows.source.mode
ids, labels = (torch.from_numpy(array) for array in batches(worker))
labels = labels.squeeze(2)
cost = nn.CrossEntropyLoss()


def step(i):
    """One training step."""
    optimizer.zero_grad()
    cost(model(ids[i % len(ids)]), labels[i % len(ids)]).backward()
    if mode == "ahead":
        rows.prefetch(ids[(i + 1) % len(ids)])
    optimizer.step()
    if mode == "geo_waiting":
        exchange.settle()


serve(step, 20, settle=exchange.settle if is_settled else None)
if mode != "local":
    fleet.stop_worker()
