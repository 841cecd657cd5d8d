"""Trains models whose layers are on different workers, case by case.

Each worker writes its parameters at the end of each case, as lists of numbers."""

import copy
import json
import sys
from pathlib import Path

import torch
from torch import nn

from fleetx import fleet

STEPS, BATCH, WORDS, WIDTH = 4, 16, 11, 6
OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1, weight_decay=0.01),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
    "adam": lambda p: torch.optim.Adam(p, lr=0.01),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.01, weight_decay=0.1),
}


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


def values(module):
    return {name: tensor.tolist() for name, tensor in module.state_dict().items()}


def pipeline(degree=2, **configs):
    return {
        "pipeline": True,
        "hybrid_configs": {"pp_degree": degree},
        "pipeline_configs": {"accumulate_steps": 4, **configs},
    }


MERGE = {"gradient_merge": True, "gradient_merge_configs": {"k_steps": 2}}
CLIP = {"gradient_clip": True, "gradient_clip_configs": {"norm": 0.05}}
RECOMPUTE = {"recompute": True, "recompute_configs": {"checkpoints": ["Block"]}}
LOCAL = {"localsgd": True, "localsgd_configs": {"k_steps": 1, "begin_step": 0}}
AMP = {"amp": True, "amp_configs": {"dtype": "bfloat16"}}
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
    "2 x 2, localsgd k1": ({**pipeline(), **LOCAL}, "sgd"),
    "2 x 2, dgc": ({**pipeline(), "dgc": True}, "momentum"),
}
# As the same techniques without a pipeline.
PAIRS = {
    "merge, clip": ({**MERGE, **CLIP}, "adamw"),
}


def begin(settings):
    strategy = fleet.DistributedStrategy()
    for name, value in settings.items():
        setattr(strategy, name, copy.deepcopy(value))
    fleet.init(is_collective=True, strategy=strategy)


def make(settings, kind, dtype=torch.float64, *, first="model"):
    begin(settings)
    module = network(dtype)
    if first == "optimizer":
        optimizer = fleet.distributed_optimizer(OPTIMIZERS[kind](module.parameters()))
        return fleet.distributed_model(module), optimizer
    model = fleet.distributed_model(module)
    return model, fleet.distributed_optimizer(OPTIMIZERS[kind](model.parameters()))


def train(model, optimizer, steps=range(STEPS)):
    return [
        model.train_batch(batch(step, fleet.data_index(), fleet.data_num()), optimizer).item()
        for step in steps
    ]


def case(settings, kind, dtype=torch.float64, **how):
    model, optimizer = make(settings, kind, dtype, **how)
    train(model, optimizer)
    return values(model)


def nbytes(tensors):
    return sum(t.numel() * t.element_size() for t in tensors)


def facts():
    """What a worker holds, what the step was said to cost, and losses of a batch."""
    model, optimizer = make(pipeline(), "adamw")
    whole = 4 * nbytes(p for p in network().parameters() if p.requires_grad)
    before = model.eval_batch(batch(0, fleet.data_index(), fleet.data_num())).item()
    losses = train(model, optimizer, range(1))
    trained = [p for p in model.parameters() if p.requires_grad]
    state = [v for each in optimizer.state.values() for k, v in each.items() if k != "step"]
    held = nbytes([*trained, *(p.grad for p in trained if p.grad is not None), *state])
    rows = fleet.explain().rows
    try:
        model(batch(0)[0])
    except RuntimeError as error:
        refused = str(error)
    try:
        model.train_batch(tuple(part[:3] for part in batch(0)), optimizer)
    except ValueError as error:
        uneven = str(error)
    smaller = model.eval_batch(tuple(part[:4] for part in batch(0))).item()
    return {
        "held": held,
        "whole": whole,
        "said": sum(row.memory or 0.0 for row in rows),
        "losses": [before, losses[0]],
        "smaller": smaller,
        "refused": refused,
        "uneven": uneven,
        "row": next(row.settings for row in rows if row.technique == "pipeline"),
    }


def several(mode):
    """Losses of a batch, evaluated and trained on, by workers with several stages."""
    model, optimizer = make(pipeline(schedule_mode=mode), "adamw")
    before = model.eval_batch(batch(0, fleet.data_index(), fleet.data_num())).item()
    losses = train(model, optimizer, range(1))
    rows = fleet.explain().rows
    return {
        "losses": [before, *losses],
        "row": next(row.settings for row in rows if row.technique == "pipeline"),
    }


def saved(settings, folder):
    """Save, train on, load into a new pair, train on again: both must end alike."""
    model, optimizer = make(settings, "adamw")
    train(model, optimizer)
    fleet.save_checkpoint(folder, model=model, optimizer=optimizer, epoch=3)
    train(model, optimizer, range(STEPS, STEPS + 2))
    again, other = make(settings, "adamw")
    fleet.load_checkpoint(folder, model=again, optimizer=other)
    train(again, other, range(STEPS, STEPS + 2))
    return {"straight": values(model), "resumed": values(again)}


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
        "saved": saved(pipeline(), folder / "saved"),
        "saved by several": saved(pipeline(schedule_mode="ZBVPP"), folder / "several"),
    }
    (folder / f"{fleet.worker_index()}.json").write_text(json.dumps(result))


if __name__ == "__main__":
    main()
