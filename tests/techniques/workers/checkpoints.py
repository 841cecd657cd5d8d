"""Trains with a technique, breaks, resumes from a checkpoint, and compares with no break.

Each worker writes the losses of both runs, for every case, as JSON."""

import json
import sys
from pathlib import Path

import torch

from fleetx import fleet

STEPS, BREAK = 7, 4
CASES = {
    "dgc": {"dgc": True, "dgc_configs": {"sparsity": [0.99], "rampup_begin_step": 2}},
    "localsgd": {"localsgd": True, "localsgd_configs": {"k_steps": 3}},
    "adaptive_localsgd": {
        "adaptive_localsgd": True,
        "adaptive_localsgd_configs": {"init_k_steps": 3},
    },
    "gradient_merge": {"gradient_merge": True, "gradient_merge_configs": {"k_steps": 3}},
    "amp": {"amp": True, "amp_configs": {"init_loss_scaling": 1024.0, "incr_every_n_steps": 2}},
    "lars and amp": {"lars": True, "amp": True},
    "lamb": {"lamb": True},
    "localsgd, gradient_merge and amp": {
        "localsgd": True,
        "localsgd_configs": {"k_steps": 2, "begin_step": 0},
        "gradient_merge": True,
        "gradient_merge_configs": {"k_steps": 2},
        "amp": True,
    },
}


def begin(settings):
    strategy = fleet.DistributedStrategy()
    for name, value in settings.items():
        setattr(strategy, name, value)
    fleet.init(is_collective=True, strategy=strategy)
    torch.manual_seed(3)
    model = torch.nn.Sequential(
        torch.nn.Linear(130, 130),
        torch.nn.BatchNorm1d(130),
        torch.nn.ReLU(),
        torch.nn.Linear(130, 4),
    )
    if strategy.lamb:
        inner = torch.optim.Adam(model.parameters(), lr=0.01)
    else:
        inner = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    return fleet.distributed_model(model), fleet.distributed_optimizer(inner)


def train(model, optimizer, start, end):
    losses = []
    for i in range(start, end):
        data = torch.Generator().manual_seed(1000 * fleet.worker_index() + i)
        x = torch.randn(8, 130, generator=data)
        y = torch.randint(0, 4, (8,), generator=data)
        loss = torch.nn.functional.cross_entropy(model(x).float(), y)
        optimizer.minimize(loss)
        losses.append(loss.item())
    return losses


def main():
    out = Path(sys.argv[1])
    result = {}
    for name, settings in CASES.items():
        folder = str(out / name)
        model, optimizer = begin(settings)
        whole = train(model, optimizer, 0, BREAK)
        fleet.save_checkpoint(folder, model=model, optimizer=optimizer, step=BREAK)
        whole += train(model, optimizer, BREAK, STEPS)
        fleet.barrier_worker()
        model, optimizer = begin(settings)
        rest = fleet.load_checkpoint(folder, model=model, optimizer=optimizer)
        resumed = train(model, optimizer, rest["step"], STEPS)
        result[name] = {"whole": whole[BREAK:], "resumed": resumed}
    model, _ = begin(CASES["localsgd"])
    try:
        with fleet.join(model):
            pass
    except ValueError as error:
        result["join"] = str(error)
    (out / f"{fleet.worker_index()}.json").write_text(json.dumps(result))


if __name__ == "__main__":
    main()
