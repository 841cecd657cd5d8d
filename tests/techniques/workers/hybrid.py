"""Trains models that are divided between workers, case by case; copies have their part of a batch.

Each worker writes its parameters at the end of each case, as lists of numbers."""

import sys
from pathlib import Path

import torch
from divided_pairs import AMP, MERGE, STEPS, Pairs, local, refusal, write
from torch import nn

from fleetx import fleet

BATCH, WORDS, WIDTH = 8, 11, 8


class Attention(nn.Module):
    """Attention that counts its heads by their width, so that a worker may have some of them."""

    def __init__(self):
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.out = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        q, k, v = (
            part(x).unflatten(-1, (-1, 2)).transpose(1, 2)
            for part in (self.query, self.key, self.value)
        )
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(mixed.transpose(1, 2).flatten(2))


class Block(nn.Module):
    """A block of a transformer."""

    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.attention = Attention()
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        x = x + self.attention(self.norm(x))
        return x + self.down(torch.tanh(self.up(x)))


class Net(nn.Module):
    """A language model whose first and last layers share a table that no degree divides."""

    tensor_parallel_plan = {
        "blocks.*.attention.out": "rowwise",
        "blocks.*.attention.*": "colwise",
        "blocks.*.up": "colwise",
        "blocks.*.down": "rowwise",
        "words": "embedding",
        "head": "gathered",
    }

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.blocks = nn.Sequential(Block(), Block())
        self.frozen = nn.Linear(WIDTH, WIDTH)
        self.frozen.requires_grad_(False)
        self.head = nn.Linear(WIDTH, WORDS, bias=False)
        self.head.weight = self.words.weight

    def forward(self, ids):
        return self.head(self.blocks(self.frozen(self.words(ids))))


def network(dtype=torch.float64):
    torch.manual_seed(3)
    return Net().to(dtype)


def batch(step, part=0, parts=1):
    generator = torch.Generator().manual_seed(step)
    return torch.randint(WORDS, (BATCH, 5), generator=generator)[part::parts]


def loss_of(model, ids):
    return nn.functional.cross_entropy(model(ids)[:, :-1].flatten(0, 1), ids[:, 1:].flatten())


TP2 = {"tensor_parallel": True, "tensor_parallel_configs": {"tensor_parallel_degree": 2}}
TP4 = {"tensor_parallel": True, "tensor_parallel_configs": {"tensor_parallel_degree": 4}}


def shards(stage, degree=2):
    configs = {"stage": stage, "sharding_degree": degree, "segment_broadcast_MB": 0.0003}
    return {"sharding": True, "sharding_configs": configs}


BOTH = {
    "hybrid_configs": {"mp_degree": 2, "sharding_degree": 2},
    "sharding": True,
    "sharding_configs": {"stage": 3},
}
CLIP_3 = {"gradient_clip": True, "gradient_clip_configs": {"norm": 0.05, "norm_type": 3.0}}


OUTER = {"outer_momentum": 0.5, "outer_lr": 0.7, "outer_nesterov": True}

# As one process: settings, optimizer. Single techniques beside these are in divided_grid.py.
ALIKE = {
    "tp2": (TP2, "adamw"),
    "tp2 sgd": (TP2, "sgd"),
    "tp4": (TP4, "momentum"),
    "hybrid mp": ({"hybrid_configs": {"mp_degree": 2, "dp_degree": 2}}, "momentum"),
    "shards 1": (shards(1), "adamw"),
    "shards 2": (shards(2), "adamw"),
    "shards 3": (shards(3), "adamw"),
    "tp2 x shards 3": (BOTH, "adamw"),
    "tp2, localsgd k1": ({**TP2, **local()}, "sgd"),
    "shards 1, localsgd k1": ({**shards(1), **local()}, "sgd"),
    "shards 2, localsgd k1": ({**shards(2), **local()}, "sgd"),
    "shards 3, localsgd k1": ({**shards(3), **local()}, "sgd"),
    "shards 1, dgc": ({**shards(1), "dgc": True}, "momentum"),
    "shards 2, dgc": ({**shards(2), "dgc": True}, "momentum"),
}
# As the same techniques without dividing the model.
PAIRS = {
    "merge, clip of order 3": (
        {**MERGE, **CLIP_3},
        "adamw",
        [TP2, BOTH, shards(1), shards(2), shards(3)],
    ),
}
# As copies that one process trains apart and averages: settings, k, outer step, optimizer.
APART = {
    "tp2": (TP2, 2, {}, "adamw"),
    "shards 1": (shards(1), 2, {}, "adamw"),
    "shards 2": (shards(2), 2, {}, "adamw"),
    "shards 3": (shards(3), 2, {}, "adamw"),
    "tp2, outer": (TP2, 2, OUTER, "momentum"),
    "shards 1, outer": (shards(1), 2, OUTER, "momentum"),
    "shards 2, outer": (shards(2), 2, OUTER, "momentum"),
    "shards 3, outer": (shards(3), 2, OUTER, "momentum"),
}
SAVED = {"tp2": TP2, "shards 2": shards(2), "shards 3": shards(3), "tp2 x shards 3": BOTH}


def train(model, optimizer, steps=range(STEPS)):
    for step in steps:
        optimizer.zero_grad()
        loss_of(model, batch(step, fleet.data_index(), fleet.data_num())).backward()
        optimizer.step()


PAIR = Pairs(network, train)
make, case = PAIR.make, PAIR.case


def saved(settings, folder):
    """Save and resume; write the weights at the end, and return scores."""

    def look(model):
        fleet.save_weights(folder.with_suffix(".safetensors"), model)
        with torch.no_grad():
            return {"scores": model.eval()(batch(STEPS)).tolist()}

    return PAIR.saved(settings, folder, look=look)


def train_whole(model, optimizer, steps):
    """Train on whole batches, whatever the number of workers is."""
    for step in steps:
        optimizer.zero_grad()
        loss_of(model, batch(step)).backward()
        optimizer.step()


def other_batches():
    """Return the error of a worker whose copy got different batches."""
    model, _ = make(TP2, "sgd")
    return refusal(model, batch(0, fleet.worker_index(), fleet.worker_num()))


def main():
    folder = Path(sys.argv[1])
    fleet.init(is_collective=True)
    if len(sys.argv) > 2:  # what four workers have saved
        pair = Pairs(network, train_whole)
        write(folder, [pair.resumed(shards(stage, 3), Path(sys.argv[2])) for stage in (2, 3)])
        return
    result = {
        "alike": {name: case(*given) for name, given in ALIKE.items()},
        "optimizer first": case(TP2, "adamw", first="optimizer"),
        "optimizer first, both": case(BOTH, "adamw", first="optimizer"),
        "pairs": {
            name: [case({**divided, **given}, kind) for divided in ways]
            for name, (given, kind, ways) in PAIRS.items()
        },
        "without": {name: case(given, kind) for name, (given, kind, _) in PAIRS.items()},
        "apart": {
            name: case({**divided, **local(k, **outer)}, kind)
            for name, (divided, k, outer, kind) in APART.items()
        },
        "amp": [case({**way, **AMP}, "sgd", torch.float32) for way in ({}, TP2, BOTH, shards(2))],
        "saved": {
            name: saved(settings, folder / name.replace(" ", "-"))
            for name, settings in SAVED.items()
        },
        "other batches": other_batches(),
    }
    write(folder, result)


if __name__ == "__main__":
    main()
