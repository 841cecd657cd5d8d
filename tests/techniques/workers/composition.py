"""Walks single techniques and triples in both front ends: each is refused before the first step or
trains. Pairs are trained in `same_bits.py`.

Each worker writes, per combination, the refusal or the losses and a check sum of its parameters."""

import itertools
import json
import sys
from pathlib import Path

import numpy as np
import torch

from fleetx import fleet
from fleetx import static as fluid

STEPS, SIZE = 3, 128
SETTINGS = {
    "amp": {"amp_configs": {"init_loss_scaling": 256.0}},
    "recompute": {"recompute_configs": {"checkpoints": ["0"]}},
    "gradient_merge": {"gradient_merge_configs": {"k_steps": 2}},
    "lars": {"lars_configs": {"lars_coeff": 0.1}},
    "lamb": {},
    "dgc": {"dgc_configs": {"sparsity": [0.9]}},
    "localsgd": {"localsgd_configs": {"k_steps": 2}},
    "adaptive_localsgd": {"adaptive_localsgd_configs": {"init_k_steps": 2}},
    "fp16_allreduce": {},
    "gradient_clip": {"gradient_clip_configs": {"norm": 1.0}},
    "stop_on_nan": {},
    "signsgd": {},
    "powersgd": {"powersgd_configs": {"start_powerSGD_iter": 1}},
    "demo": {},
}


WITHOUT_TRIPLES = ("gradient_clip", "stop_on_nan", "signsgd", "powersgd", "demo")
STAGES = [name for name in SETTINGS if name not in WITHOUT_TRIPLES]


def combinations():
    yield from itertools.combinations(SETTINGS, 1)
    yield from itertools.combinations(STAGES, 3)


def strategy_of(names):
    strategy = fleet.DistributedStrategy()
    for name in names:
        setattr(strategy, name, True)
        for group, values in SETTINGS[name].items():
            setattr(strategy, group, values)
    return strategy


def batch(step):
    rng = np.random.default_rng([7, fleet.worker_index(), step])
    x = rng.standard_normal((4, SIZE)).astype("float32")
    return x, rng.integers(0, 4, (4, 1)).astype("int64")


def eager(names):
    fleet.init(is_collective=True, strategy=strategy_of(names))
    torch.manual_seed(1)
    model = torch.nn.Sequential(
        torch.nn.Linear(SIZE, SIZE), torch.nn.ReLU(), torch.nn.Linear(SIZE, 4)
    )
    if "lamb" in names:
        inner = torch.optim.Adam(model.parameters(), lr=1e-3)
    else:
        momentum = 0.0 if "demo" in names else 0.9  # demo has its own
        inner = torch.optim.SGD(model.parameters(), lr=0.05, momentum=momentum)
    optimizer = fleet.distributed_optimizer(inner)
    model = fleet.distributed_model(model)
    losses = []
    for step in range(STEPS):
        x, y = batch(step)
        out = model(torch.from_numpy(x)).float()
        loss = torch.nn.functional.cross_entropy(out, torch.from_numpy(y)[:, 0])
        optimizer.minimize(loss)
        losses.append(loss.item())
    total = sum(p.detach().double().sum().item() for p in model.parameters())
    return losses, total


def program(names):
    strategy = strategy_of(names)
    fleet.init(is_collective=True)
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        main.random_seed = startup.random_seed = 1
        x = fluid.layers.data("x", [SIZE])
        y = fluid.layers.data("y", [1], dtype="int64")
        hidden = fluid.layers.fc(x, SIZE, act="relu")
        out = fluid.layers.fc(hidden, 4)
        loss = fluid.layers.mean(fluid.layers.softmax_with_cross_entropy(out, y))
        if "recompute" in names:
            strategy.recompute_configs = {"checkpoints": [hidden.name]}
        if "lamb" in names:
            inner = fluid.optimizer.Adam(1e-3)
        elif "demo" in names:
            inner = fluid.optimizer.SGD(0.05)
        else:
            inner = fluid.optimizer.Momentum(0.05, 0.9)
        fleet.distributed_optimizer(inner, strategy).minimize(loss)
    with fluid.scope_guard(fluid.Scope()):
        exe = fluid.Executor(fluid.CPUPlace())
        exe.run(startup)
        losses = []
        for step in range(STEPS):
            a, b = batch(step)
            losses.append(float(exe.run(main, feed={"x": a, "y": b}, fetch_list=[loss])[0]))
        scope = fluid.global_scope()
        params = [p.name for p in main.all_parameters() if p.trainable]
        total = sum(
            np.array(scope.find_var(n).get_tensor()).astype("float64").sum() for n in params
        )
    return losses, float(total)


def main():
    result = {"eager": {}, "static": {}}
    for train, found in zip((eager, program), result.values(), strict=True):
        for names in combinations():
            try:
                losses, total = train(names)
            except ValueError as error:
                found[" ".join(names)] = {"refused": str(error)}
            else:
                found[" ".join(names)] = {"losses": losses, "total": total}
    Path(sys.argv[1], f"{fleet.worker_index()}.json").write_text(json.dumps(result))


if __name__ == "__main__":
    main()
