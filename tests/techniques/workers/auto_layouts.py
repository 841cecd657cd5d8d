"""Trains with `auto` under a limit of a worker's memory, and again with what was found set by hand.

Each worker writes choices, what was tried, and its parameters, as JSON."""

import json
import sys
from pathlib import Path

import hybrid
import pipeline
import torch
from divided_pairs import SAVED_AFTER, STEPS, begin, values, write
from torch import nn

from fleetx import fleet

WIDTH, BLOCKS = 512, 4
# Parameters of a block: 8.4 MB, with gradients and Adam's state 33.6 MB.
LIMITS = {2: 75, 4: 50}
"""MB, which only layers or stages on different workers fit into."""
JOINED = {"joined_batches": True}


def tensor_parallel(degree):
    configs = {"tensor_parallel_degree": degree}
    return {
        "tensor_parallel": True,
        "tensor_parallel_configs": configs,
        "hybrid_configs": dict(JOINED),
    }


def stages(degree, micro_batches, **more):
    return {
        "pipeline": True,
        "pipeline_configs": {"accumulate_steps": micro_batches},
        "hybrid_configs": {"pp_degree": degree, **JOINED},
        **more,
    }


def sharding(stage, degree):
    return {"sharding": True, "sharding_configs": {"stage": stage, "sharding_degree": degree}}


# By number of workers: what `auto` may choose, and how a script would set it by hand.
CASES = {
    2: {
        hybrid: {"tensor_parallel 2": tensor_parallel(2), "sharding 3": sharding(3, 2)},
        pipeline: {"pipeline 2": stages(2, 8), "tensor_parallel 2": tensor_parallel(2)},
    },
    4: {
        hybrid: {
            "tensor_parallel 2": tensor_parallel(2),
            "tensor_parallel 4": tensor_parallel(4),
            "tensor_parallel 2 x sharding 3 of 2": {**tensor_parallel(2), **sharding(3, 2)},
        },
        pipeline: {
            "pipeline 4": stages(4, 16),
            "pipeline 2 x sharding 1 of 2": stages(2, 8, **sharding(1, 2)),
            "tensor_parallel 2 x pipeline 2": {**tensor_parallel(2), **stages(2, 8)},
        },
    },
}


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(x)))


class Large(nn.Sequential):
    tensor_parallel_plan = {"*.up": "colwise", "*.down": "rowwise"}

    def __init__(self):
        super().__init__(*(Block() for _ in range(BLOCKS)))


def squares(outputs, targets):
    return (outputs - targets).float().square().mean()


def large(settings, *, whole_batches, plain=False):
    """Train a model of 134 MB with all that belongs to it; return sums over its parameters."""
    begin(settings)
    torch.manual_seed(4)
    module = nn.Sequential(*Large()) if plain else Large()
    model = fleet.distributed_model(module)
    optimizer = fleet.distributed_optimizer(torch.optim.Adam(model.parameters(), lr=0.001))
    torch.manual_seed(fleet.data_index())
    for _ in range(2):
        x, y = torch.randn(4, WIDTH), torch.randn(4, WIDTH)
        if whole_batches:
            model.train_batch((x, y), optimizer, loss_fn=squares)
        else:
            optimizer.zero_grad()
            squares(model(x), y).backward()
            optimizer.step()
    state = model.state_dict()  # all workers must ask for it
    return [float(value.double().square().sum()) for value in state.values()]


# Nothing else to choose from, so that all ways to divide the model are tried.
FIXED = {
    "amp": True,
    "amp_configs": {"dtype": "bfloat16"},
    "fp16_allreduce": True,
    "fuse_grad_size_in_MB": 32,
    "recompute": True,
    "recompute_configs": {"checkpoints": ["Block"]},
}


def auto(file, limit, **more):
    configs = {"steps": 1, "file": str(file), "worker_memory_mb": limit, **more}
    return {"auto": True, "auto_configs": configs}


def kept(file):
    fleet.barrier_worker()
    return json.loads(file.read_text())


def limited(folder, name, **how):
    """Search with little memory, and train with what was found."""
    file = folder / f"{name}.choice"
    found = large({**FIXED, **auto(file, LIMITS[fleet.worker_num()])}, **how)
    parts = [fleet.data_index(), fleet.data_num()]
    choice = kept(file)
    by_hand = large({**FIXED, **choice["changes"]}, **how)
    notes = {row["name"]: row["note"] for row in choice["tried"]}
    measured = [row["name"] for row in choice["tried"] if row["seconds"]]
    return {
        "found": found,
        "by hand": by_hand,
        "choice": choice["name"],
        "notes": notes,
        "measured": measured,
        "parts": parts,
    }


def remembered(folder, source, name, settings):
    """Train with a choice that the file remembers, and with the same set by hand."""
    file = folder / f"{source.__name__} {name}.choice"
    first = auto(file, 1000, time_limit=1e-9)  # tries one strategy only
    source.case(first, "adamw")
    if fleet.worker_index() == 0:
        choice = json.loads(file.read_text())
        file.write_text(json.dumps({**choice, "name": name, "changes": settings}))
    model, optimizer = source.make(first, "adamw")
    source.train(model, optimizer, range(STEPS))
    names = fleet._get_applied_meta_list()
    return {"auto": values(model), "by hand": source.case(settings, "adamw"), "applied": names}


def resumed(folder, source, name, _):
    """Return parameters and optimizer state of training straight on, and of going on from a
    checkpoint that is loaded before the strategy is chosen."""
    file, saved = folder / f"{source.__name__} {name}.choice", folder / f"{source.__name__} saved"
    model, optimizer = source.make(auto(file, 1000), "adamw")  # as `remembered` has left the file
    source.train(model, optimizer, range(SAVED_AFTER))
    fleet.save_checkpoint(saved, model=model, optimizer=optimizer, epoch=0)
    source.train(model, optimizer, range(SAVED_AFTER, STEPS))
    straight = values(model), moments(optimizer)
    model, optimizer = source.make(auto(file, 1000), "adamw")
    fleet.load_checkpoint(saved, model=model, optimizer=optimizer)
    source.train(model, optimizer, range(SAVED_AFTER, STEPS))
    names = fleet._get_applied_meta_list()
    return {"straight": straight, "resumed": (values(model), moments(optimizer)), "applied": names}


def moments(optimizer):
    """Return the optimizer state as one process would have it, by parameter."""
    state = optimizer.state_dict()["state"]
    return {str(i): each["exp_avg"].tolist() for i, each in state.items()}


def uneven(folder):
    """Return what is noted of ways by which workers would join batches of different shapes."""
    file = folder / "uneven.choice"
    begin(auto(file, 1000, time_limit=1e-9))
    model = fleet.distributed_model(Large())
    fleet.distributed_optimizer(torch.optim.SGD(model.parameters(), lr=0.1))
    model(torch.randn(2 + fleet.worker_index(), WIDTH)).sum().backward()
    return {row["name"]: row["note"] for row in kept(file)["tried"]}


def too_little():
    try:
        large({**FIXED, **auto("", 5)}, whole_batches=True)
    except RuntimeError as error:
        return str(error)
    return ""


def main():
    folder = Path(sys.argv[1])
    fleet.init(is_collective=True)
    result = {
        "forward": limited(folder, "forward", whole_batches=False),
        "batches": limited(folder, "batches", whole_batches=True),
        "remembered": [
            {name: remembered(folder, source, name, settings) for name, settings in cases.items()}
            for source, cases in CASES[fleet.worker_num()].items()
        ],
        "resumed": [
            resumed(folder, source, *next(iter(cases.items())))
            for source, cases in CASES[fleet.worker_num()].items()
        ],
        "uneven": uneven(folder),
        "too little": too_little(),
    }
    write(folder, result)


if __name__ == "__main__":
    main()
