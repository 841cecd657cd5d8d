"""Trains with sharding, case by case; each worker has its part of every batch.

Each worker writes its parameters and buffers at the end of each case, as lists of numbers."""

import contextlib
import json
import os
import socket
import stat
import struct
import sys
from pathlib import Path

import torch
from torch import nn

from fleetx import fleet

STEPS, BATCH = 4, 8
OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1, weight_decay=0.01),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
    "adam": lambda p: torch.optim.Adam(p, lr=0.01, amsgrad=True),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.01, weight_decay=0.1),
}
MERGE = {"gradient_merge": True, "gradient_merge_configs": {"k_steps": 2}}
CLIP = {"gradient_clip": True, "gradient_clip_configs": {"norm": 0.05}}
CLIP_3 = {"gradient_clip": True, "gradient_clip_configs": {"norm": 0.05, "norm_type": 3.0}}
RECOMPUTE = {"recompute": True, "recompute_configs": {"checkpoints": ["Block"]}}
# Techniques beside sharding, with the optimizer of the case.
PAIRS = {
    "amp, recompute": ("adam", {"amp": True, "amp_configs": {"dtype": "bfloat16"}, **RECOMPUTE}),
    "amp float16": ("adam", {"amp": True, "amp_configs": {"dtype": "float16"}}),
    "gradient_merge, gradient_clip": ("adam", {**MERGE, **CLIP_3}),
    "gradient_clip, stop_on_nan": ("momentum", {**CLIP, "stop_on_nan": True}),
    "lars": ("momentum", {"lars": True, "lars_configs": {"lars_coeff": 0.1}}),
    "lamb": ("plain adam", {"lamb": True}),
    "fp16_allreduce": ("momentum", {"fp16_allreduce": True}),
}
# In stage 1 all workers have all gradients, as without sharding.
PAIRS_OF = {
    1: ["amp, recompute", "gradient_merge, gradient_clip", "lars", "lamb"],
    2: list(PAIRS),
    3: list(PAIRS),
}
OPTIMIZERS["plain adam"] = lambda p: torch.optim.Adam(p, lr=0.01)


KINDS = ["sgd", "momentum", "adam", "adamw"]


class Block(nn.Module):
    """A residual block with a buffer that every forward pass changes."""

    def __init__(self, width):
        super().__init__()
        self.inner = nn.Linear(width, 2 * width)
        self.outer = nn.Linear(2 * width, width, bias=False)
        self.register_buffer("seen", torch.zeros(1))

    def forward(self, x):
        if self.training:
            self.seen.mul_(0.5).add_(1.0)
        return x + self.outer(torch.tanh(self.inner(x)))


class Net(nn.Module):
    """Sizes that no number of workers divides, a shared and a frozen parameter."""

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(11, 5)
        self.blocks = nn.Sequential(*(Block(5) for _ in range(3)))
        self.frozen = nn.Linear(5, 5)
        self.frozen.requires_grad_(False)
        self.scale = nn.Parameter(torch.ones(1))
        self.head = nn.Linear(5, 11, bias=False)
        self.head.weight = self.words.weight
        self.odd = nn.Linear(5, 3)

    def forward(self, ids):
        x = self.blocks(self.frozen(self.words(ids)).tanh())
        return self.head(x) * self.scale + nn.functional.pad(self.odd(x), (0, 8))


def network(dtype=torch.float64):
    torch.manual_seed(3)
    return Net().to(dtype)


def batch(step, part=0, parts=1):
    generator = torch.Generator().manual_seed(step)
    ids = torch.randint(11, (BATCH, 2), generator=generator)
    return ids[part::parts]


def loss_of(model, ids):
    return nn.functional.cross_entropy(model(ids[:, 0]).double(), ids[:, 1])


def values(module):
    return {name: tensor.tolist() for name, tensor in module.state_dict().items()}


def begin(settings, stage):
    strategy = fleet.DistributedStrategy()
    for name, value in settings.items():
        setattr(strategy, name, value)
    if stage:
        strategy.sharding = True
        strategy.sharding_configs = {"stage": stage, "segment_broadcast_MB": 0.0003}
    fleet.init(is_collective=True, strategy=strategy)


def make(kind, settings, stage, dtype=torch.float64):
    """Return model and optimizer, made in one of the orders that scripts have."""
    begin(settings, stage)
    module = network(dtype)
    if kind == "sgd":
        optimizer = fleet.distributed_optimizer(OPTIMIZERS[kind](module.parameters()))
        return fleet.distributed_model(module), optimizer
    inner = OPTIMIZERS[kind](module.parameters())
    model = fleet.distributed_model(module)
    if kind != "momentum":
        inner = OPTIMIZERS[kind](model.parameters())
    return model, fleet.distributed_optimizer(inner)


def train(model, optimizer, steps=range(STEPS), passes=1):
    for step in steps:
        optimizer.zero_grad()
        for ids in batch(step, fleet.worker_index(), fleet.worker_num()).chunk(passes):
            (loss_of(model, ids) / passes).backward()
        optimizer.step()


def case(kind, settings, stage, dtype=torch.float64, passes=1):
    model, optimizer = make(kind, settings, stage, dtype)
    train(model, optimizer, passes=passes)
    return values(model)


def pair(name, stage):
    kind, settings = PAIRS[name]
    try:
        return case(kind, settings, stage, torch.float32 if "amp" in name else torch.float64)
    except ValueError as error:
        return str(error)


def held(stage):
    """What a worker holds after backward and update, and what the step was said to cost."""
    model, optimizer = make("adamw", {}, stage)
    train(model, optimizer)
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    explained = fleet.explain()
    return {
        "state": state_bytes(optimizer),
        "gradients": sum(map(nbytes, gradients)),
        "parameters": sum(nbytes(p) for p in model.parameters() if p.requires_grad),
        "whole": sum(p.numel() * p.element_size() for p in model.parameters() if p.requires_grad),
        "blocks": 3 * (5 * 10 + 10 + 10 * 5) * 8,
        "rows": [
            (str(r.stage), r.technique, r.memory, r.bytes_sent, r.settings) for r in explained.rows
        ],
    }


def state_bytes(optimizer):
    return sum(
        nbytes(value)
        for each in optimizer.state.values()
        for key, value in each.items()
        if key != "step"
    )


def nbytes(tensor):
    local = tensor.to_local() if hasattr(tensor, "to_local") else tensor
    return local.numel() * local.element_size()


def received():
    """Return the bytes that this process has received over TCP so far."""
    total = 0
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            if not stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                continue
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(int(name))) as each:
            info = each.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
            total += struct.unpack_from("Q", info, 128)[0]  # tcpi_bytes_received
    return total


def wide():
    """Return layers whose messages are large enough for memory that is used again."""
    torch.manual_seed(5)
    return nn.Sequential(Block(64), nn.Linear(64, 64), Block(64), nn.Linear(64, 300)).double()


def train_wide(model, optimizer, part=0, parts=1):
    for step in range(STEPS):
        generator = torch.Generator().manual_seed(step)
        inputs = torch.randn(BATCH, 64, generator=generator, dtype=torch.float64)
        optimizer.zero_grad()
        model(inputs[part::parts]).square().mean().backward()
        optimizer.step()
    return values(model)


def wide_case():
    begin({}, 3)
    model = fleet.distributed_model(wide())
    optimizer = fleet.distributed_optimizer(OPTIMIZERS["momentum"](model.parameters()))
    return train_wide(model, optimizer, fleet.worker_index(), fleet.worker_num())


def wire(stage):
    """The bytes per step that the step is said to send, and those that arrive."""
    begin({}, stage)
    torch.manual_seed(0)
    model = fleet.distributed_model(nn.Sequential(*(Block(64) for _ in range(4))))
    optimizer = fleet.distributed_optimizer(torch.optim.SGD(model.parameters(), lr=0.1))
    before = 0
    for step in range(-1, STEPS):
        if step == 0:
            fleet.barrier_worker()
            before = received()
        optimizer.minimize(model(torch.ones(2, 64)).square().mean())
    fleet.barrier_worker()
    return {"said": fleet.explain().bytes_sent, "received": (received() - before) / STEPS}


def saved(stage, folder):
    """Save, train on, load into a new pair, train on again: both must end alike."""
    model, optimizer = make("adamw", {}, stage)
    train(model, optimizer)
    fleet.save_checkpoint(folder, model=model, optimizer=optimizer, epoch=3)
    names = list(model.state_dict()), [n for n, _ in model.named_parameters()]
    whole = {str(i): sorted(each) for i, each in optimizer.state_dict()["state"].items()}
    train(model, optimizer, range(STEPS, STEPS + 2))
    again, other = make("adamw", {}, stage)
    rest = fleet.load_checkpoint(folder, model=again, optimizer=other)
    kept = state_bytes(other)
    train(again, other, range(STEPS, STEPS + 2))
    return {
        "names": names,
        "whole": whole,
        "rest": rest,
        "kept": kept,
        "straight": values(model),
        "resumed": values(again),
    }


def main():
    folder, stages = Path(sys.argv[1]), [int(stage) for stage in sys.argv[2].split(",")]
    fleet.init(is_collective=True)
    result = {}
    for stage in stages:
        result[stage] = {
            "optimizers": {kind: case(kind, {}, stage) for kind in KINDS},
            "passes": case("adam", {}, stage, passes=2),
            "held": held(stage),
            "wire": wire(stage),
            "saved": saved(stage, folder / f"stage{stage}"),
            "pairs": {name: pair(name, stage) for name in PAIRS_OF[stage]},
        }
    if 3 in stages:
        result["wide"] = wide_case()
    result["without"] = {name: pair(name, 0) for name in PAIRS}
    (folder / f"{fleet.worker_index()}.json").write_text(json.dumps(result))


if __name__ == "__main__":
    main()
