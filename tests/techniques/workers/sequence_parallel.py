"""Trains models whose layers, sequences and losses are divided between workers, case by case.

Each worker writes its parameters at the end of each case, as lists of numbers."""

import sys
from pathlib import Path

import torch
from divided_pairs import CLIP, RECOMPUTE, STEPS, Pairs, refusal, write
from hybrid import WIDTH, WORDS, Attention
from torch import nn

from fleetx import fleet

BATCH, LENGTH = 8, 8


class Mlp(nn.Sequential):
    """A pair of divided layers."""

    def __init__(self):
        super().__init__(nn.Linear(WIDTH, 4 * WIDTH), nn.Tanh(), nn.Linear(4 * WIDTH, WIDTH))


class Block(nn.Module):
    """A block of a transformer."""

    def __init__(self):
        super().__init__()
        self.norm_1, self.norm_2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attention, self.mlp = Attention(), Mlp()

    def forward(self, x):
        x = x + self.attention(self.norm_1(x))
        return x + self.mlp(self.norm_2(x))


class Net(nn.Module):
    """A language model, which as a pipeline has its table twice."""

    tensor_parallel_plan = {
        "blocks.0": "split",
        "blocks.*.attention": "whole",
        "blocks.*.mlp": "whole",
        "blocks.*.norm_*": "sequence",
        "norm": "joined",
        "blocks.*.attention.out": "rowwise",
        "blocks.*.attention.*": "colwise",
        "blocks.*.mlp.0": "colwise",
        "blocks.*.mlp.2": "rowwise",
        "words": "embedding",
        "head": "gathered",
    }

    def __init__(self, *, shares):
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.blocks = nn.Sequential(Block(), Block())
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, WORDS, bias=False)
        if shares:
            self.head.weight = self.words.weight

    def pipeline_layers(self):
        return [self.words, *self.blocks, self.norm, self.head]

    def forward(self, ids):
        for layer in self.pipeline_layers():
            ids = layer(ids)
        return ids

    @staticmethod
    def loss_fn(scores, ids):
        return nn.functional.cross_entropy(scores[:, :-1].flatten(0, 1), ids[:, 1:].flatten())


def network(kind="tied"):
    torch.manual_seed(3)
    return Net(shares=kind == "tied").double()


def batch(step, part=0, parts=1):
    generator = torch.Generator().manual_seed(step)
    return torch.randint(WORDS, (BATCH, LENGTH), generator=generator)[part::parts].contiguous()


def loss_of(model, ids):
    return model.loss_fn(model(ids), ids)


def train(model, optimizer):
    """Train on a worker's parts of all batches."""
    for step in range(STEPS):
        ids = batch(step, fleet.data_index(), fleet.data_num())
        model.train_batch((ids, ids), optimizer)


def layers(degree=2, **how):
    """Return settings of divided layers."""
    return {
        "tensor_parallel": True,
        "tensor_parallel_configs": {"tensor_parallel_degree": degree, **how},
    }


PARTS, LOSS = {"sequence_parallel": True}, {"loss_parallel": True}
SHARDS = {
    "hybrid_configs": {"mp_degree": 2, "sharding_degree": 2},
    "sharding_configs": {"stage": 3},
}
STAGES = {
    "hybrid_configs": {"mp_degree": 2, "pp_degree": 2},
    "pipeline_configs": {"accumulate_steps": 4},
}
# Plans besides the model's own. Pairs of layers need no module around them that is whole, and what
# is not divided is computed by all workers.
ENDS = {"blocks.0": "split", "blocks.*.norm_*": "sequence", "norm": "joined"}
PAIRS = {"blocks.*.mlp.0": "colwise", "blocks.*.mlp.2": "rowwise"}
HEADS = {"blocks.*.attention.out": "rowwise", "blocks.*.attention.*": "colwise"}
GATHERING = {**ENDS, **PAIRS, **HEADS}
REPEATED = {**ENDS, **PAIRS, "blocks.*.attention": "repeated"}
# As one process: settings, and the model.
CASES = {
    "parts": (layers(**PARTS), "tied"),
    "loss": (layers(**LOSS), "tied"),
    "both": (layers(**PARTS, **LOSS), "tied"),
    "both by 4": (layers(4, **PARTS, **LOSS), "tied"),
    "both, shards 3": ({**layers(**PARTS, **LOSS), **SHARDS}, "tied"),
    "both, recompute": ({**layers(**PARTS, **LOSS), **RECOMPUTE}, "tied"),
    "both, pipeline": ({**layers(**PARTS, **LOSS), **STAGES}, "apart"),
    "layers that gather for themselves": (layers(**PARTS, plan=GATHERING), "tied"),
    "an attention that is repeated": (layers(**PARTS, plan=REPEATED), "tied"),
}


def case(settings, kind):
    return Pairs(lambda _: network(kind), train).case(settings, "momentum")


def odd():
    """Return the error of a sequence that cannot be divided."""
    model, _ = Pairs(lambda _: network(), train).make(layers(**PARTS), "momentum")
    return refusal(model, batch(0)[:, :5])


def main():
    folder = Path(sys.argv[1])
    fleet.init(is_collective=True)
    result = {
        "alike": {name: case(*given) for name, given in CASES.items()},
        "clipped": [case({**way, **CLIP}, "tied") for way in ({}, layers(**PARTS, **LOSS))],
        "odd": odd(),
    }
    write(folder, result)


if __name__ == "__main__":
    main()
