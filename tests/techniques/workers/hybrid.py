"""Trains models that are divided between workers, case by case; copies have their part of a batch.

Each worker writes its parameters at the end of each case, as lists of numbers."""

import copy
import json
import sys
from pathlib import Path

import torch
from torch import nn

from fleetx import fleet

STEPS, BATCH, WORDS, WIDTH = 4, 8, 11, 8
OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1, weight_decay=0.01),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
    "adam": lambda p: torch.optim.Adam(p, lr=0.01),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.01, weight_decay=0.1),
}


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


def values(module):
    return {name: tensor.tolist() for name, tensor in module.state_dict().items()}


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
MERGE = {"gradient_merge": True, "gradient_merge_configs": {"k_steps": 2}}
CLIP_3 = {"gradient_clip": True, "gradient_clip_configs": {"norm": 0.05, "norm_type": 3.0}}


def local(k=1, **more):
    return {"localsgd": True, "localsgd_configs": {"k_steps": k, "begin_step": 0, **more}}


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
AMP = {"amp": True, "amp_configs": {"dtype": "bfloat16"}}


def begin(settings):
    strategy = fleet.DistributedStrategy()
    for name, value in settings.items():
        setattr(strategy, name, copy.deepcopy(value))
    fleet.init(is_collective=True, strategy=strategy)


def make(settings, kind, dtype=torch.float64, *, first="model"):
    """Return model and optimizer, made in one of the orders that scripts have."""
    begin(settings)
    module = network(dtype)
    if first == "optimizer":
        optimizer = fleet.distributed_optimizer(OPTIMIZERS[kind](module.parameters()))
        return fleet.distributed_model(module), optimizer
    model = fleet.distributed_model(module)
    return model, fleet.distributed_optimizer(OPTIMIZERS[kind](model.parameters()))


def train(model, optimizer, steps=range(STEPS)):
    for step in steps:
        optimizer.zero_grad()
        loss_of(model, batch(step, fleet.data_index(), fleet.data_num())).backward()
        optimizer.step()


def case(settings, kind, dtype=torch.float64, **how):
    model, optimizer = make(settings, kind, dtype, **how)
    train(model, optimizer)
    return values(model)


def nbytes(tensor):
    local = tensor.to_local() if hasattr(tensor, "to_local") else tensor
    return local.numel() * local.element_size()


def held(model, optimizer):
    """What a worker holds after an update, and what the step was said to cost."""
    trained = [p for p in model.parameters() if p.requires_grad]
    state = [v for each in optimizer.state.values() for k, v in each.items() if k != "step"]
    explained = fleet.explain()
    return {
        "held": sum(
            map(nbytes, [*trained, *(p.grad for p in trained if p.grad is not None), *state])
        ),
        "whole": 4 * sum(p.numel() * p.element_size() for p in trained),
        "said": sum(row.memory or 0.0 for row in explained.rows),
        "table": str(explained),
    }


def saved(settings, folder):
    """Save, train on, load into a new pair, train on again: both must end alike."""
    model, optimizer = make(settings, "adamw")
    train(model, optimizer, range(2))
    memory = held(model, optimizer)
    fleet.save_checkpoint(folder, model=model, optimizer=optimizer, epoch=3)
    train(model, optimizer, range(2, STEPS))
    fleet.save_weights(folder.with_suffix(".safetensors"), model)
    with torch.no_grad():
        scores = model.eval()(batch(STEPS)).tolist()
    again, other = make(settings, "adamw")
    fleet.load_checkpoint(folder, model=again, optimizer=other)
    train(again, other, range(2, STEPS))
    return {
        "memory": memory,
        "scores": scores,
        "straight": values(model),
        "resumed": values(again),
    }


def resumed(settings, folder):
    """Go on from a checkpoint of another number of workers; all take whole batches."""
    model, optimizer = make(settings, "adamw")
    fleet.load_checkpoint(folder, model=model, optimizer=optimizer)
    for step in range(2, STEPS):
        optimizer.zero_grad()
        loss_of(model, batch(step)).backward()
        optimizer.step()
    return values(model)


def other_batches():
    """Return the error of a worker whose copy got different batches."""
    model, _ = make(TP2, "sgd")
    try:
        model(batch(0, fleet.worker_index(), fleet.worker_num()))
    except ValueError as error:
        return str(error)
    return ""


def main():
    folder = Path(sys.argv[1])
    fleet.init(is_collective=True)
    if len(sys.argv) > 2:  # what four workers have saved
        shards_of_3 = [resumed(shards(stage, 3), Path(sys.argv[2])) for stage in (2, 3)]
        (folder / f"{fleet.worker_index()}.json").write_text(json.dumps(shards_of_3))
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
    (folder / f"{fleet.worker_index()}.json").write_text(json.dumps(result))


if __name__ == "__main__":
    main()
