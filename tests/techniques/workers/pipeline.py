"""Trains models whose layers are on different workers, case by case.

Each worker writes its parameters at the end of each case, as lists of numbers."""

import sys
from pathlib import Path

import torch
from divided_pairs import AMP, CLIP, MERGE, RECOMPUTE, STEPS, Pairs, held, local, refusal, write
from torch import nn

from fleetx import fleet

BATCH, WORDS, WIDTH = 16, 11, 6


class Block(nn.Module):
    """A residual block."""

    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(3 * WIDTH, WIDTH)

    def forward(self, x):
        return x + self.down(torch.tanh(self.up(self.norm(x))))


class Net(nn.Module):
    """A model that names its layers, and computes its loss from what comes out of them."""

    tensor_parallel_plan = {
        "blocks.*.up": "colwise",
        "blocks.*.down": "rowwise",
        "words": "embedding",
        "head": "gathered",
    }

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(3))
        self.blocks[0].norm.requires_grad_(False)
        self.head = nn.Linear(WIDTH, WORDS)

    def pipeline_layers(self):
        return [self.words, *self.blocks, self.head]

    def pipeline_inputs(self):
        return batch(0)[0][:4]

    def forward(self, x):
        for layer in self.pipeline_layers():
            x = layer(x)
        return x

    @staticmethod
    def loss_fn(scores, targets):
        return nn.functional.cross_entropy(scores, targets)


def network(dtype=torch.float64):
    torch.manual_seed(3)
    return Net().to(dtype)


def batch(step, part=0, parts=1):
    generator = torch.Generator().manual_seed(step)
    ids = torch.randint(WORDS, (BATCH, 2), generator=generator)[part::parts]
    return ids[:, 0], ids[:, 1]


def loss_of(model, samples):
    inputs, targets = samples
    return model.loss_fn(model(inputs), targets)


def pipeline(degree=2, **configs):
    return {
        "pipeline": True,
        "hybrid_configs": {"pp_degree": degree},
        "pipeline_configs": {"accumulate_steps": 4, **configs},
    }


# As one process: settings, optimizer. Single techniques beside these are in divided_grid.py.
ALIKE = {
    "2 x 2": (pipeline(), "adamw"),
    "2 x 2, named": (pipeline(stages=["blocks.2"]), "momentum"),
    "2 x 2, cut by time": (pipeline(cut_by="time"), "adamw"),
    "2 x 2, F-then-B": (pipeline(schedule_mode="F-then-B"), "sgd"),
    "2 x 2, interleaved": (pipeline(schedule_mode="VPP"), "adamw"),
    "2 x 2, zero bubble": (pipeline(schedule_mode="ZBVPP"), "momentum"),
    "4": (pipeline(4), "adamw"),
    "by default": ({"pipeline": True}, "momentum"),
    "2 x 2, interleaved, recompute": ({**pipeline(schedule_mode="VPP"), **RECOMPUTE}, "momentum"),
    "2 x 2, localsgd k1": ({**pipeline(), **local()}, "sgd"),
    "2 x 2, dgc": ({**pipeline(), "dgc": True}, "momentum"),
}
# As the same techniques without a pipeline.
PAIRS = {
    "merge, clip": ({**MERGE, **CLIP}, "adamw"),
}


def train(model, optimizer, steps=range(STEPS)):
    return [
        model.train_batch(batch(step, fleet.data_index(), fleet.data_num()), optimizer).item()
        for step in steps
    ]


PAIR = Pairs(network, train)
make, case = PAIR.make, PAIR.case


def facts():
    """What a worker holds, what the step was said to cost, and losses of a batch."""
    model, optimizer = make(pipeline(), "adamw")
    before = model.eval_batch(batch(0, fleet.data_index(), fleet.data_num())).item()
    losses = train(model, optimizer, range(1))
    memory = held(model, optimizer)
    try:
        model(batch(0)[0])
    except RuntimeError as error:
        refused = str(error)
    return {
        "memory": memory,
        "losses": [before, losses[0]],
        "refused": refused,
        "uneven": refusal(model.train_batch, tuple(part[:3] for part in batch(0)), optimizer),
        "smaller": model.eval_batch(tuple(part[:4] for part in batch(0))).item(),
        "row": own_row(),
    }


def own_row():
    """Return what the step's table says of the pipeline."""
    return next(row.settings for row in fleet.explain().rows if row.technique == "pipeline")


def several(mode):
    """Losses of a batch, evaluated and trained on, by workers with several stages."""
    model, optimizer = make(pipeline(schedule_mode=mode), "adamw")
    before = model.eval_batch(batch(0, fleet.data_index(), fleet.data_num())).item()
    losses = train(model, optimizer, range(1))
    return {"losses": [before, *losses], "row": own_row()}


def main():
    folder = Path(sys.argv[1])
    fleet.init(is_collective=True)
    result = {
        "alike": {name: case(*given) for name, given in ALIKE.items()},
        "optimizer first": case(pipeline(), "adamw", first="optimizer"),
        "pairs": {name: case({**pipeline(), **pair[0]}, pair[1]) for name, pair in PAIRS.items()},
        "without": {name: case(*pair) for name, pair in PAIRS.items()},
        "amp": [case({**way, **AMP}, "sgd", torch.float32) for way in ({}, pipeline())],
        "facts": facts(),
        "several": {mode: several(mode) for mode in ("VPP", "ZBVPP")},
        "saved": PAIR.saved(pipeline(), folder / "saved"),
        "saved by several": PAIR.saved(
            pipeline(schedule_mode="ZBVPP"), folder / "saved by several"
        ),
    }
    write(folder, result)


if __name__ == "__main__":
    main()
