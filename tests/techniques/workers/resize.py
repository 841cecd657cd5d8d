"""Saves checkpoints, or loads those of another number of workers: `save:folder`, `load:folder`.

Each worker writes what it held and heard as <out>/<rank>.pt."""

import logging
import sys
from pathlib import Path

import torch

from fleetx import fleet

CASES = {
    "localsgd": {"localsgd": True, "localsgd_configs": {"k_steps": 3, "begin_step": 0}},
    "adaptive": {
        "adaptive_localsgd": True,
        "adaptive_localsgd_configs": {"init_k_steps": 9, "begin_step": 0},
    },
    "outer": {
        "localsgd": True,
        "localsgd_configs": {"k_steps": 3, "begin_step": 0, "outer_momentum": 0.5},
    },
    "dgc": {"dgc": True, "dgc_configs": {"sparsity": [0.99]}},
    "dgc keep_rate": {"dgc": True, "dgc_configs": {"sparsity": [0.99], "keep_rate": True}},
    "merge": {"gradient_merge": True, "gradient_merge_configs": {"k_steps": 4}},
}
STEPS = 5


def begin(settings):
    strategy = fleet.DistributedStrategy()
    for name, value in settings.items():
        setattr(strategy, name, value)
    fleet.init(is_collective=True, strategy=strategy)
    torch.manual_seed(3)
    model = torch.nn.Sequential(
        torch.nn.Linear(130, 130), torch.nn.BatchNorm1d(130), torch.nn.Linear(130, 4)
    )
    inner = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.75)
    return fleet.distributed_model(model), fleet.distributed_optimizer(inner)


def train(model, optimizer, start, steps):
    for i in range(start, start + steps):
        data = torch.Generator().manual_seed(1000 * fleet.worker_index() + i)
        x = torch.randn(8, 130, generator=data)
        y = torch.randint(0, 4, (8,), generator=data)
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step(loss=loss)


def held(model, optimizer):
    state = optimizer.state_dict()
    tensors = {name: value.clone() for name, value in model.state_dict().items()}
    for i, own in state["state"].items():
        names = {k: v for k, v in own.items() if isinstance(v, torch.Tensor)}
        tensors.update({f"{i}.{k}": v.clone() for k, v in names.items()})
    merged = state.get("fleet", {}).get("grad_sync", {}).get("merged", {})
    return {**tensors, **{f"merged.{k}": v.clone() for k, v in merged.items()}}


class Messages(logging.Handler):
    def __init__(self):
        super().__init__()
        self.texts = []

    def emit(self, record):
        self.texts.append(record.getMessage())


def save(folder):
    """Train, save, synchronise and go on; return what was held, by case."""
    result = {}
    for name, settings in CASES.items():
        model, optimizer = begin(settings)
        train(model, optimizer, 0, STEPS)
        saved = held(model, optimizer)
        own = torch.get_rng_state() + torch.tensor(fleet.worker_index(), dtype=torch.uint8)
        path = str(Path(folder, name))
        fleet.save_checkpoint(path, model=model, optimizer=optimizer, step=STEPS, random=own)
        fleet.synchronize_model()
        result[name] = {"saved": saved, "synchronized": held(model, optimizer)}
        train(model, optimizer, STEPS, 3)
        fleet.synchronize_model()
    return result


def load(folder):
    """Load the checkpoints of another number of workers and continue; return the state by case."""
    result = {}
    for name, settings in CASES.items():
        messages = Messages()
        logging.getLogger("fleetx.fleet").addHandler(messages)
        model, optimizer = begin(settings)
        rest = fleet.load_checkpoint(str(Path(folder, name)), model=model, optimizer=optimizer)
        found = {"loaded": held(model, optimizer), "random": rest["random"]}
        train(model, optimizer, rest["step"], 4)
        fleet.synchronize_model()
        result[name] = {**found, "trained": held(model, optimizer), "said": messages.texts}
        logging.getLogger("fleetx.fleet").removeHandler(messages)
    return result


def main():
    out, *ways = sys.argv[1:]
    result = {}
    for each in ways:
        way, folder = each.split(":", 1)
        result[way] = {"save": save, "load": load}[way](folder)
    torch.save(result, Path(out, f"{fleet.worker_index()}.pt"))
    Path(out, f"{fleet.worker_index()}.json").write_text("{}")


if __name__ == "__main__":
    main()
